"""The states that a training committed to on the way to its trained model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vflops.record.formats.job_events import Checkpointed, Committed
from vflops.record.log.events import Event
from vflops.record.readout.trained_job import Attempt

COMMITMENTS: dict[str, type[Committed]] = {"checkpoint": Checkpointed, "commitment": Committed}
"""The events that commit to a state, with their types."""


class LineState(NamedTuple):
    """A state that counts, and where it is from."""

    committed: Committed
    event: Event
    attempt: Attempt

    @property
    def kept(self) -> Checkpointed | None:
        """The checkpoint with the state, if it is kept for audits."""
        item = self.committed
        return item if isinstance(item, Checkpointed) and item.kept else None


def lineage(attempts: Sequence[Attempt]) -> tuple[list[LineState], list[int]]:
    """Return the states that lead to the trained model, and the steps of all resumes.

    What an attempt committed to after the checkpoint from which the next one resumed was lost.
    """
    line: list[LineState] = []
    resumes: list[int] = []
    for number, attempt in enumerate(attempts):
        if number and attempt.has_progress:
            line = [item for item in line if item.committed.step <= attempt.first_step]
            resumes += [attempt.first_step] * (attempt.first_step > 0)
        line += _states(attempt)
    return line, resumes


def _states(attempt: Attempt) -> Iterator[LineState]:
    for event in attempt.log.events:
        if event.kind in COMMITMENTS:
            yield LineState(event.payload(COMMITMENTS[event.kind]), event, attempt)
