"""Ends a search once its score has converged: the workers decide together, without a master.

Between two candidates, each worker computes the score from the logs of all workers, as it will be
computed from the record. The first that finds it converged writes ``buffer/converged.json``. All
workers look for this file and end within seconds, in the middle of a candidate as at the end of the
time; a candidate that was cut off has no result, so the results are those of a longer search too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from vflops.record.folder import RunFolder
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.search_events import ConvergedEnd
from vflops.workloads.automl.search_history import SearchHistory
from vflops.workloads.automl.search_moments import MAX_VARIATION, search_moments, variation
from vflops.workloads.automl.settings import AutomlSettings

_LOOK_S = 2.0
"""How often a worker looks whether another one has ended the search."""
_MARGIN = 0.5
"""The score must vary by less than this share of the limit, because the last steps of the workers,
which their logs do not hold yet, still change it."""


@dataclass
class Convergence:
    """Whether a search has converged; every rank of every worker has one."""

    folder: RunFolder
    jobs: Mapping[int, int]
    """The job of each worker."""
    worker: int
    buffer: CandidateBuffer
    settings: AutomlSettings
    due_s: float
    """When this worker has searched for long enough, on the monotonic clock."""
    _end: ConvergedEnd | None = field(default=None, init=False)
    _looked_s: float | None = field(default=None, init=False)

    @property
    def end(self) -> ConvergedEnd | None:
        """The decision to end the search, at most a few seconds after it was made."""
        now_s = time.monotonic()
        if self._end is None and (self._looked_s is None or now_s >= self._looked_s + _LOOK_S):
            self._looked_s = now_s
            self._end = self.buffer.search_end()
        return self._end

    def decide(self) -> None:
        """End the search if every worker has searched for long enough and it has converged."""
        if self.end is not None or time.monotonic() < self.due_s:
            return
        search = self.settings.search
        history = SearchHistory([self.folder.job_history(job) for job in self.jobs.values()])
        starts_s = [None if span is None else span[0] for span in history.spans_s]
        now_s = time.time()
        if any(start_s is None or now_s - start_s < search.least_s for start_s in starts_s):
            return
        moments = search_moments(history, search.score_from_round)
        varies = variation(moments)
        if varies is not None and varies < _MARGIN * MAX_VARIATION:
            end = ConvergedEnd(
                worker=self.worker,
                utc_s=now_s,
                duration_s=moments[-1].time_s,
                ops_per_s=moments[-1].ops_per_s,
                variation=varies,
            )
            self.buffer.end_search(end)
            self._end = self.buffer.search_end()
