"""What earlier controllers of a run wrote down of its jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobBegun, JobGivenUp, JobLost
from vflops.record.log.events import Log

EXCUSING_EVENT = "candidate-failed"
"""An attempt that dies after this event is not counted against its job.

A worker of a search has recorded that its candidate cannot be trained, and the next attempt does
not try it again.
"""
LEFT = "its jobs were left running"
"""How a run stopped whose jobs go on."""


@dataclass
class JobPast:
    """Of one job."""

    begun: int = 0
    """Attempts in all."""
    losses: int = 0
    """Attempts that died, since it was last given up and tried again."""
    running: bool = False
    """Whether an attempt was begun of which nobody wrote how it ended."""
    given_up: str | None = None
    """Why it is not tried any more."""


def pasts(folder: RunFolder) -> Mapping[int, JobPast]:
    """The past of every job.

    A run that failed or was stopped and is begun again tries anew what it had given up; a
    controller that dies changes nothing.
    """
    found: defaultdict[int, JobPast] = defaultdict(JobPast)
    for event in (event for log in folder.job_history(0) for event in log.events):
        if event.kind == "job-begun":
            job = found[event.payload(JobBegun).job]
            job.begun, job.running = job.begun + 1, True
        elif event.kind == "job-lost":
            job = found[event.payload(JobLost).job]
            job.losses, job.running = job.losses + 1, False
        elif event.kind == "job-given-up":
            given_up = event.payload(JobGivenUp)
            found[given_up.job].given_up = given_up.reason
        elif event.kind in ("failed", "stopped") and event.data.get("message") != LEFT:
            for job in found.values():
                job.running = job.running and event.kind == "failed"
                if job.given_up is not None:
                    job.losses, job.given_up = 0, None
    return found


def excused(log: Log) -> bool:
    """Whether an attempt ended right after an event that excuses it."""
    kinds = [event.kind for event in log.events if event.kind != "failed"]
    return kinds[-1:] == [EXCUSING_EVENT]
