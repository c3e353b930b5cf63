"""When the training loop commits to its state in the log, and when it writes checkpoints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from vflops import interruption
from vflops.config.training import TrainSettings
from vflops.metrics.training_time import kept_steps
from vflops.record.formats.job_events import Checkpointed
from vflops.train.committing import Committer, HashedState
from vflops.train.context import JobContext
from vflops.train.parallel.rank_group import RankGroup
from vflops.train.state import TrainState

COMMIT_S = 1.0
"""The least time between two commitments."""
COMMIT_SHARE = 0.004
"""The largest share of the time that commitments take."""
_KEPT_LOSSES = 4096
ACCELERATOR_DELAY = 0.02
"""How much of the time for copying and hashing delays training: all of it on a CPU, which then
trains with one core less; an accelerator has steps in its queue meanwhile, and 1.2 % was the most
that was measured on an H200 (``benchmarks/commitment_cost.py``)."""


class LoopCommitments:
    """The commitments and checkpoints of one training loop.

    Only one state is hashed at a time, while training continues. Its event is written when the
    hash is known, before the checkpoint becomes valid: the log knows every valid checkpoint.
    """

    def __init__(
        self,
        context: JobContext,
        settings: TrainSettings,
        group: RankGroup,
        state: TrainState,
        end: int,
    ) -> None:
        """``end`` is the last step of the loop."""
        self._context, self._settings, self._group, self._state = context, settings, group, state
        self._committer = Committer(state.checkpoints)
        self._segment = context.record.segment
        keeps = context.keep_last and self._segment is None
        segments = settings.segments if keeps else 0
        self._kept = frozenset(kept_steps(end=end, segments=segments))
        self._losses: dict[int, float] = {}
        self._times: dict[int, dict[str, Any]] = {}
        self.samples_compiling = 0
        """Samples whose steps included compilation; they are all at the start of an attempt."""
        self.saved_step = self._begun_step = state.step
        """The step of the last complete checkpoint."""
        self._begun_kept = state.step in self._kept
        self._committed_s = self._saved_s = time.monotonic()
        self._commit_cost_s = self._saving_s = 0.0
        self._delay = 1.0 if state.backend.device.type == "cpu" else ACCELERATOR_DELAY
        # A checkpoint becomes valid during the evaluation that follows it, not after.
        context.clock.on_tick = self.write

    @property
    def _commits(self) -> bool:
        """Whether this rank commits to states between checkpoints."""
        return self._state.backend.commits_alone and self._group.leads

    @property
    def is_due(self) -> bool:
        """Whether to commit to the current state."""
        if not self._commits:
            return False
        if self._segment is not None:
            return self._state.step in self._segment.commits
        if self._settings.commit_every is not None:
            return self._state.step % self._settings.commit_every == 0
        if self._committer.busy:
            return False
        elapsed_s = time.monotonic() - self._committed_s
        return elapsed_s >= max(COMMIT_S, self._commit_cost_s / COMMIT_SHARE)

    @property
    def ends_segment(self) -> bool:
        """Whether a segment ends with the current step, so that its state is kept."""
        if self._segment is not None:
            return self._state.step in self._segment.checkpoints
        return self._state.step in self._kept

    @property
    def is_affordable(self) -> bool:
        """Whether checkpoints stay within their share of the time if another one is written now.

        It is assumed to take as long as the last one.
        """
        if self._segment is not None:
            return self._state.step in self._segment.checkpoints
        share, elapsed_s = self._settings.checkpoint_share, time.monotonic() - self._saved_s
        if elapsed_s < self._context.keep_after_s:
            return False
        return self._saving_s * (1 - share) <= share * elapsed_s

    @property
    def is_overdue(self) -> bool:
        """Whether the last checkpoint is older than the settings allow."""
        if self._segment is not None:
            return False
        return time.monotonic() - self._saved_s > self._settings.checkpoint_s

    def commit(self) -> None:
        """Begin to hash the current state; only the leading rank does so."""
        if self._commits:
            self.write(wait=True)
            began_s = time.monotonic()
            self._begin(self._state.contents())
            # The first one allocates memory that the others use again.
            is_first = self._commit_cost_s == 0.0
            took_s = 0.0 if is_first else time.monotonic() - began_s
            self._commit_cost_s = self._delay * took_s

    def checkpoint(self, *, is_last: bool = False) -> None:
        """Begin a checkpoint of the current step, unless there is one; all ranks call it.

        That of the last step is written again if it was not kept: it was begun before the
        evaluation that ended the training.
        """
        step = self._state.step
        must_keep = is_last and bool(self._kept)
        if step == self._begun_step and (self._begun_kept or not must_keep):
            return
        began_s = time.monotonic()
        self.write(wait=True)
        self._state.backend.synchronise_buffers()
        self._state.require_finite()
        contents = self._state.contents()
        kept = must_keep or self.ends_segment
        is_file = self._segment is None or step == self._segment.last
        self._begin(contents, checkpoint=is_file, kept=kept)
        self._begun_step, self._begun_kept = step, kept
        self._saved_s = time.monotonic()
        self._saving_s = self._saved_s - began_s
        if not self._group.leads:
            self.saved_step = step

    def note_losses(self, losses: Sequence[tuple[int, float]]) -> None:
        """Keep the losses of the last steps, for the events of states that are being hashed."""
        self._losses.update(losses)
        for step in sorted(self._losses)[:-_KEPT_LOSSES]:
            del self._losses[step]

    def write(self, *, wait: bool = False) -> None:
        """Write the event of a state that is hashed by now; with ``wait``, wait for it."""
        with interruption.protected():  # a checkpoint whose event is written becomes valid
            hashed = self._committer.take(wait=wait)
            if hashed is not None:
                self._write(hashed)

    def _write(self, hashed: HashedState) -> None:
        event = hashed.event(self._losses.get(hashed.step))
        event = event.model_copy(update=self._times.pop(hashed.step))
        if isinstance(event, Checkpointed):
            self._saving_s += self._delay * hashed.took_s
            self._context.write_event("checkpoint", event)
            self._state.checkpoints.complete(event)
            self.saved_step = hashed.step
        else:
            self._commit_cost_s += self._delay * hashed.took_s
            self._context.write_event("commitment", event, sync=False)

    def close(self) -> None:
        """End the thread that hashes."""
        self._context.clock.on_tick = lambda: None
        self._committer.close()

    def _begin(self, contents: dict[str, Any] | None, **kind: bool) -> None:
        if contents is not None:
            self._times[self._state.step] = {
                "phases": self._context.clock.spent_s(),
                "samples_compiling": self.samples_compiling,
            }
            self._committer.begin(self._state.step, contents, **kind)
            self._committed_s = time.monotonic()
