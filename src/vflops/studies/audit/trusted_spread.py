"""The spread of honest repetitions, from parts of a run that the auditor trusts."""

from __future__ import annotations

from vflops.errors import UsageError
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.studies.audit.committed_segments import (
    Segment,
    candidates_of,
    last_evaluation,
    segments_of,
)
from vflops.studies.audit.judging import Deviation, deviation
from vflops.studies.audit.retraining import Retrainer, data_here


class TrustedSpread:
    """Measures how far parts of a trusted run are from their repetition here."""

    def __init__(self, trusted: Contents, retrainer: Retrainer) -> None:
        """``retrainer`` is that of the audited run."""
        self._trusted = trusted
        facts = data_here(trusted, None, lambda what, done, total: None)
        self._retrainer = Retrainer(trusted, retrainer.folder, retrainer.events, facts)
        self._measured: dict[tuple[int, int, int], Deviation] = {}

    def measure(self, like: Segment) -> Deviation:
        """Return the deviation of the trusted part at the same point of its training.

        Rounding errors grow fastest at the start, so parts at other points say little.
        """
        job, segment = self._nearest(like)
        key = (segment.job, segment.first, segment.last)
        if key not in self._measured:
            again = self._retrainer.train(segment)
            self._measured[key] = deviation(job, segment, again)
            again.delete_states()
        return self._measured[key]

    def _nearest(self, like: Segment) -> tuple[TrainedJob, Segment]:
        found: list[tuple[float, TrainedJob, Segment]] = []
        for job in (*self._trusted.training_jobs, *self._trusted.workers):
            parts = candidates_of(job) if job.record.worker is not None else segments_of(job)
            evaluation = last_evaluation(job) if job.record.worker is None else None
            if not like.steps and like.candidate is None:
                parts = [] if evaluation is None else [evaluation]
            for part in parts:
                if (part.candidate is None) == (like.candidate is None):
                    found.append((abs(part.first - like.first), job, part))
        if not found:
            raise UsageError(
                f"{self._trusted.folder.path} has no part like those of the audited run",
                hint="give a trusted run of the same workload and settings",
            )
        _, job, part = min(found, key=lambda item: item[0])
        return job, part
