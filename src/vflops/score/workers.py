"""The workers of a search on one time line, whatever nodes they were on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path

from vflops.automl.story import Search
from vflops.score.contents import Contents
from vflops.score.timeline import Part, Timeline
from vflops.score.trained import Trained


def searches(contents: Contents) -> list[list[Trained]]:
    """The workers of each search."""
    groups = groupby(contents.workers, key=lambda job: (job.record.workload, job.record.repeat))
    return [list(jobs) for _, jobs in groups]


def story_of(members: Sequence[Trained]) -> Search:
    """What the workers' logs say together."""
    timeline = WorkerTimeline(members)
    offsets = [
        [timeline.early_s(each.record.job, place) for place in each.folders] for each in members
    ]
    return Search([each.logs for each in members], offsets)


class WorkerTimeline(Timeline):
    """The time line of workers: they are at work from their first event to their last.

    A training begins with its first step; a worker that waits for a candidate takes power too.
    """

    def __init__(self, members: Sequence[Trained]) -> None:
        super().__init__(members)
        self._workers = members

    def early_s(self, job: int, place: Path) -> float:
        """How far the clock of an attempt's log is ahead; 0 where that is not known."""
        return self.parts_of(job, place, (0.0, 0.0))[0].offset_s

    @cached_property
    def parts(self) -> dict[str, list[Part]]:
        """What each host did for all attempts, in the order of the workers."""
        found: dict[str, list[Part]] = {}
        for member in self._workers:
            job = member.record.job
            for place, log in zip(member.folders, member.logs, strict=True):
                if len(log.events) > 1:
                    start_s = log.events[0].utc_s - self.early_s(job, place)
                    length_s = log.events[-1].time_s - log.events[0].time_s
                    for part in self.parts_of(job, place, (start_s, start_s + length_s)):
                        found.setdefault(part.host, []).append(part)
        return found
