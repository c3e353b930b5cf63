"""The context of a rank: its job, its attempt, its log and its clock."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from vflops.errors import RunFailed
from vflops.launch.local.processes import STORE
from vflops.metrics.quality import bounds_fault
from vflops.record.files.document import Data
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import Evaluated, Finished, OutOfBag, Tested
from vflops.record.log.events import EventWriter
from vflops.train.phase_clock import Clock
from vflops.train.signals import StopSource


@dataclass(frozen=True)
class JobContext:
    """One rank of one attempt at a job."""

    record: JobRecord
    rank: int
    local_rank: int
    attempt: Path
    """The folder of the attempt."""
    events: EventWriter | None
    """Writes the job's log; None on ranks other than 0."""
    clock: Clock
    stop: StopSource
    local_ranks: int | None = None
    """Number of the job's ranks on this node; None for all of them."""
    keep_after_s: float = 0.0
    """Minimum seconds since the last checkpoint before an evaluation may write another."""
    keep_last: bool = True
    """Whether to write a checkpoint when training ends."""
    finished_step: int | None = None
    """The last step of training, if an earlier attempt reached it; otherwise None."""
    committed: frozenset[tuple[int, str]] | None = None
    """Steps and hashes of the checkpoints in the job's log; None to accept any checkpoint."""

    @property
    def checkpoints(self) -> Path:
        """The folder of the job's checkpoints, shared by all attempts."""
        return self.attempt.parent / "checkpoint"

    @property
    def store(self) -> str:
        """URL of the ranks' rendezvous: from the launcher, or a file in the attempt's folder."""
        return os.environ.get(STORE) or f"file://{(self.attempt / 'store').resolve()}"

    def write_event(self, kind: str, payload: Data, *, sync: bool = True) -> None:
        """Write an event to the job's log; do nothing on ranks other than 0.

        After the end of training there is no rhythm by which a hang could be recognised.
        Raise ``RunFailed`` if it reports a quality outside of its bounds.
        """
        if isinstance(payload, Finished):
            self.clock.rest()
        if self.events is not None:
            if isinstance(payload, Evaluated | Tested | OutOfBag):
                require_within_bounds(self.record, payload.quality)
            self.events.write(kind, sync=sync, **payload.model_dump(mode="json"))


def require_within_bounds(record: JobRecord, quality: float) -> None:
    """Raise ``RunFailed`` if a quality of this job is outside of its bounds."""
    fault = bounds_fault(record.goal.quality, quality, record.goal.bounds)
    if fault:
        raise RunFailed(
            fault,
            hint=f"correct how the workload {record.workload} computes it, or its bounds "
            "(WorkloadSpec.quality), and start a new run",
        )
