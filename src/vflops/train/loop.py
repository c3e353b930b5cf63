"""The training loop: steps, evaluations and checkpoints."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vflops.config.training import TrainSettings
from vflops.data.bag import bag_indices
from vflops.data.sampler import Sampler, mix, uniforms
from vflops.errors import RunFailed
from vflops.interruption import Signalled
from vflops.metrics import time_to_quality
from vflops.record.formats.job import Goal
from vflops.record.formats.job_events import Evaluated, Finished, Progressed
from vflops.train.context import JobContext
from vflops.train.evaluation import LoopEvaluation, Outcome
from vflops.train.loader import Loader, Request, loader
from vflops.train.loop_commitments import LoopCommitments
from vflops.train.losses import Losses, first_non_finite
from vflops.train.parallel.rank_group import RankGroup
from vflops.train.schedules import learning_rate
from vflops.train.state import TrainState
from vflops.workloads.contract.workload import Inputs, Workload

_FIRST_STEPS = 4
"""The first steps of an audit's process, each of which it reports, so that it can time the rest."""
_REPORT_S = 1.0
"""Seconds between two progress events."""
_CONTINUE, _CHECKPOINT, _STOP = 0, 1, 2


@dataclass
class Loop:
    """Trains a job's model from its current state to the end."""

    context: JobContext
    settings: TrainSettings
    goal: Goal
    workload: Workload
    group: RankGroup
    state: TrainState
    evaluation: LoopEvaluation
    dtype: torch.dtype
    """The type of the model's inputs."""

    def __post_init__(self) -> None:
        self._clock = self.context.clock
        backend = self.state.backend
        self._device = backend.device
        # The first steps include compilation, or the choice of kernels.
        self._compiles = backend.compiled or backend.device.type != "cpu"
        self._samples = self.workload.samples("train")
        record = self.context.record
        self._bag = bag_indices(record.bag, len(self._samples))
        size = len(self._samples) if self._bag is None else len(self._bag)
        self._sampler = Sampler(size, mix(record.seed))
        self._steps = self._steps_in(self.settings.epochs)
        self._schedule_steps = self._steps_in(self.settings.schedule_epochs or self.settings.epochs)
        end_epoch = self.settings.end_epoch or self.settings.epochs
        self._end = min(self._steps_in(end_epoch), self._steps)
        segment = record.segment
        if segment is not None:
            self._end = min(self._end, segment.last)
        self._commitments = LoopCommitments(
            self.context, self.settings, self.group, self.state, self._end
        )
        self._losses = Losses(self._device)
        self._loss: float | None = None
        self._reported_s = time.monotonic()
        self._compiling = 0
        self.outcome: Outcome | None = None
        """The outcome of the last evaluation; None before the first one."""

    def run(self) -> str | None:
        """Train to the end; return the signal that stopped the training, or None if it finished.

        Raise ``Signalled`` if a signal arrives before the first step or in an evaluation.
        """
        first = self.state.step
        try:
            return self._run()
        except Signalled:
            if self.state.step > first:
                self._save_abandoned()
            raise

    def _save_abandoned(self) -> None:
        """Save the steps before an evaluation that was abandoned."""
        self.context.stop.set_unsaved_work(True)
        if self.group.ranks == 1:
            self._checkpoint(wait=True)
        self._report_progress()

    def _run(self) -> str | None:
        self._clock.enter("training")
        self._announce_unsaved_work()
        if self.state.step == 0:
            self._commitments.commit()
        evaluation_steps = self._evaluation_steps()
        # A checkpoint is written before the evaluation of its step, which may not have finished.
        if self.state.step in evaluation_steps and (reason := self._evaluate_and_check_end()):
            self._finish(reason)
            return None
        batches = loader(
            self._samples, self._requests(self.state.step), self._prepare_batch, self._device
        )
        incoming = iter(batches)
        try:
            while self.state.step < self._end:
                self._step(incoming)
                is_evaluated = self.state.step in evaluation_steps
                ends_segment = self._commitments.ends_segment
                if ends_segment or (
                    is_evaluated and self.group.agree(self._commitments.is_affordable)
                ):
                    self._checkpoint()
                elif self._commitments.is_due:
                    self._commitments.commit()
                if is_evaluated and (reason := self._evaluate_and_check_end()):
                    self._finish(reason)
                    return None
                if self.state.step % self.group.agree_every == 0 or is_evaluated:
                    action = self._next_action()
                    if action >= _CHECKPOINT:
                        self._checkpoint(wait=action == _STOP)
                    if action == _STOP:
                        self._report_progress()
                        return self.context.stop.signal or "a signal on another rank"
        finally:
            self._close_loader(batches)
            self._commitments.close()
        self._finish("epochs")
        return None

    def one_batch(self) -> list[Inputs]:
        """Return the first batch of the training data."""
        requests = itertools.islice(self._requests(0), self.settings.accumulate)
        batches = loader(self._samples, requests, self._prepare_batch, self._device)
        try:
            return list(batches)
        finally:
            batches.close()

    def _evaluate_and_check_end(self) -> str | None:
        """Evaluate the model; return the reason to end training, or None to continue.

        An audit trains its part to the last step, whatever it finds.
        """
        # A single rank can abandon the evaluation and then save; several would have to agree.
        self.context.stop.set_unsaved_work(self.group.ranks > 1 and self._has_unsaved_steps)
        reached = self._evaluate() and self.settings.stop_at_target
        assert self.outcome is not None
        evaluations = self._evaluations_since_best(self.outcome) if not reached else 0
        segment = self.context.record.segment
        if segment is not None and self.state.step < segment.last:
            return None
        if reached:
            return "target"
        return "patience" if evaluations == self.settings.patience else None

    def _evaluations_since_best(self, outcome: Outcome) -> int:
        """Return the number of evaluations since the best one, by quality or by loss."""
        if self.settings.stop_by == "quality":
            return self.state.since_best(outcome.quality, self.goal.better)
        if outcome.loss is None:
            raise RunFailed(
                f"{self.context.record.workload} measures no loss in evaluations",
                hint="--set train.stop_by=quality",
            )
        loss = math.inf if outcome.finite_loss is None else outcome.finite_loss
        return self.state.since_best(loss, "lower")

    def _step(self, incoming: Iterator[Inputs]) -> None:
        state = self.state
        compiling = self._compiles and not state.warm
        with self._clock.phase("compilation" if compiling else "data"):
            count = self.settings.accumulate if self.group.needs_input else 0
            parts = [next(incoming) for _ in range(count)]
        with self._clock.phase("compilation" if compiling else "training"):
            torch.manual_seed(mix(self.context.record.seed, state.step, self.group.share) >> 1)
            loss = state.take_step(parts, self._rate())
            self._compiling += self.settings.batch if compiling else 0
            self._commitments.samples_compiling = self._compiling
            self._losses.put(state.step, loss)
            self._collect_losses(all=compiling)
            self._commitments.write()
        self._announce_unsaved_work()

    def _collect_losses(self, *, all: bool = False) -> None:
        """Read the losses that are known by now, or all of them; raise if one is not finite."""
        known = self._losses.ready(all=all)
        diverged = first_non_finite(known)
        if diverged is not None:
            raise self._diverged(*diverged)
        self._commitments.note_losses(known)
        if known:
            self._loss = known[-1][1]
        is_due = known and time.monotonic() - self._reported_s >= _REPORT_S
        if is_due or self._is_first_of_audit:
            self._report_progress()

    @property
    def _is_first_of_audit(self) -> bool:
        """Whether this is one of the uneven first steps of an audit, which it does not time."""
        segment = self.context.record.segment
        return segment is not None and self.state.step - segment.first <= _FIRST_STEPS

    def _report_progress(self) -> None:
        self._reported_s = time.monotonic()
        payload = Progressed(
            step=self.state.step,
            samples=self._trained,
            epoch=self._epoch,
            loss=self._loss,
            learning_rate=self._rate(),
            phases=self._clock.spent_s(),
            samples_compiling=self._compiling,
        )
        self.context.write_event("progress", payload, sync=False)

    def _evaluate(self) -> bool:
        """Evaluate the model; return whether the target is reached."""
        with self._clock.phase("training"):
            self._collect_losses(all=True)  # the device finishes training before evaluation starts
        if self._compiles and self.outcome is None:
            with self._clock.phase("compilation"):
                self.state.evaluate(self.evaluation.first_batch)
        with self._clock.phase("evaluation"):
            self.state.backend.synchronise_buffers()
            self.outcome = self.state.evaluate(self.evaluation)
        quality = self.outcome.quality
        payload = Evaluated(
            step=self.state.step,
            samples=self._trained,
            epoch=self._epoch,
            quality=quality,
            evaluated=self.outcome.evaluated,
            loss=self.outcome.finite_loss,
            learning_rate=self._rate(),
            phases=self._clock.spent_s(),
            samples_compiling=self._compiling,
        )
        self.context.write_event("evaluation", payload)
        reached = time_to_quality(
            [1.0], [quality], target=self.goal.target, better=self.goal.better
        )
        return reached is not None

    def _checkpoint(self, *, wait: bool = False, is_last: bool = False) -> None:
        """Begin a checkpoint of the current step; with ``wait``, return once it is complete.

        ``is_last`` says that the training has ended with this step.
        """
        with self._clock.phase("training"):
            if self.group.ranks > 1 or wait:
                self._collect_losses(all=True)
        with self._clock.phase("checkpointing"):
            self._commitments.checkpoint(is_last=is_last)
            if wait or self.group.ranks > 1:
                self._commitments.write(wait=True)
            self.group.barrier()

    @property
    def _has_unsaved_steps(self) -> bool:
        return self.state.step != self._commitments.saved_step

    def _announce_unsaved_work(self) -> None:
        """Let a signal end the rank at once if no step would be lost."""
        self.context.stop.set_unsaved_work(self._has_unsaved_steps)

    def _finish(self, reason: str) -> None:
        """Write the final checkpoint and the ``finished`` event."""
        if self.context.keep_last:
            self._checkpoint(wait=True, is_last=True)
        with self._clock.phase("checkpointing"):
            self._commitments.write(wait=True)
            weights_sha256 = self.state.weights_hash()
        payload = Finished.model_validate(
            {
                "step": self.state.step,
                "samples": self._trained,
                "epoch": self._epoch,
                "reason": reason,
                "phases": self._clock.spent_s(),
                "samples_compiling": self._compiling,
                "weights_sha256": weights_sha256,
                "peak_memory_bytes": self.state.backend.peak_memory_bytes(),
            }
        )
        self.context.write_event("finished", payload)
        self._announce_unsaved_work()

    def _next_action(self) -> int:
        """Return what all ranks do next: continue, write a checkpoint, or write one and stop."""
        action = _CONTINUE
        if self.context.stop.signal:
            action = _STOP
        elif self._commitments.is_overdue:
            action = _CHECKPOINT
        return self.group.agree(action)

    def _close_loader(self, batches: Loader) -> None:
        with self._clock.phase("data"):
            batches.close()

    def _requests(self, first: int) -> Iterator[Request]:
        """Yield the parts of this rank's share of each step, starting with step ``first``."""
        train, group, draws = self.settings, self.group, self.workload.draws
        seed = mix(self.context.record.seed, 1)
        for step in range(first, self._end):
            start, indices = self._sampler.share(step, train.batch, group.share, group.shares)
            if self._bag is not None:
                indices = self._bag[indices]
            for offset in range(0, len(indices), train.rank_batch):
                part = indices[offset : offset + train.rank_batch]
                numbers = uniforms(seed, start + offset, len(part), draws) if draws else None
                yield Request(part, None if numbers is None else torch.from_numpy(numbers))

    def _prepare_batch(self, batch: tuple[Tensor, ...], draws: Tensor | None) -> Inputs:
        return self.workload.inputs(batch, draws, self.dtype)

    def _evaluation_steps(self) -> set[int]:
        """Return the steps after which the model is evaluated."""
        train = self.settings
        every = range(train.evaluate_every, train.epochs + 1, train.evaluate_every)
        steps = {self._steps_in(epoch) for epoch in every} | {self._end}
        segment = self.context.record.segment
        return steps if segment is None or segment.is_end else steps - {self._end}

    def _steps_in(self, epochs: int) -> int:
        """Return the number of steps of ``epochs`` epochs.

        An epoch has as many samples as the training data, independent of the size of the bag, so
        that all models of an ensemble do the same amount of work.
        """
        return -(-epochs * len(self._samples) // self.settings.batch)

    def _rate(self) -> float:
        train, per_epoch = self.settings, len(self._samples) / self.settings.batch
        return learning_rate(
            train.schedule,
            step=min(self.state.step, self._steps - 1),
            steps=self._schedule_steps,
            warmup_steps=round(train.warmup_epochs * per_epoch),
            peak=train.peak_rate,
            milestones_steps=tuple(
                dict.fromkeys(round(epoch * per_epoch) for epoch in train.milestones)
            ),
            power=train.power,
            end=train.end_rate,
        )

    @property
    def _trained(self) -> int:
        return self.state.step * self.settings.batch

    @property
    def _epoch(self) -> float:
        return round(self._trained / len(self._samples), 4)

    def _diverged(self, step: int, loss: float) -> RunFailed:
        checkpoint = self.state.checkpoints.latest()
        rate = self._rate()
        return RunFailed(
            f"the loss is {loss} at step {step}; "
            + (
                f"the last good checkpoint is {checkpoint}"
                if checkpoint
                else "there is no checkpoint yet"
            ),
            hint=f"start again with a smaller --set train.learning_rate (it was {rate:.3g} there)"
            + ("" if self.settings.warmup_epochs else ", a --set train.warmup_epochs")
            + ("" if self.settings.precision == "fp32" else ", or --set train.precision=fp32"),
        )
