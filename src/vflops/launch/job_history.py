"""The attempts at a run's jobs, as earlier controllers recorded them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import JobBegun, JobGivenUp, JobLost

MAX_LOSSES = 2
"""After it has lost this many jobs, a node gets no further ones."""


@dataclass
class AttemptHistory:
    """The attempts at one job."""

    started: int = 0
    """All attempts that were started."""
    losses: int = 0
    """The attempts that died since the job was last given up and resumed."""
    running: bool = False
    """Whether an attempt was started whose end is not recorded."""
    given_up: str | None = None
    """Why the job was given up."""


def attempt_histories(folder: RunFolder) -> Mapping[int, AttemptHistory]:
    """Return the history of attempts at every job.

    If a run failed or was stopped, jobs that had been given up are retried when it is resumed. If a
    controller dies, nothing changes.
    """
    histories: defaultdict[int, AttemptHistory] = defaultdict(AttemptHistory)
    for event in (event for log in folder.job_history(0) for event in log.events):
        if event.kind == "job-begun":
            job = histories[event.payload(JobBegun).job]
            job.started, job.running = job.started + 1, True
        elif event.kind == "job-lost":
            lost = event.payload(JobLost)
            job = histories[lost.job]
            job.losses, job.running = job.losses + (not lost.excused), False
        elif event.kind == "job-given-up":
            given_up = event.payload(JobGivenUp)
            histories[given_up.job].given_up = given_up.reason
        elif event.kind in ("failed", "stopped") and not event.data.get("left"):
            for job in histories.values():
                job.running = job.running and event.kind == "failed"
                if job.given_up is not None:
                    job.losses, job.given_up = 0, None
    return histories


def nodes_that_lost_jobs(folder: RunFolder) -> list[str]:
    """Return the nodes that lost too many jobs of this run, under any controller.

    A node where a rank hung is among them at once, because each hang takes minutes to notice; but
    not if it is only one of several that may be at fault.
    """
    events = (event for log in folder.job_history(0) for event in log.events)
    losses = [event.payload(JobLost) for event in events if event.kind == "job-lost"]
    counts = Counter(node for loss in losses for node in loss.suspects)
    certain = [loss.suspects[0] for loss in losses if loss.hung and len(loss.suspects) == 1]
    counts.update(certain * MAX_LOSSES)
    return sorted(node for node, count in counts.items() if count >= MAX_LOSSES)
