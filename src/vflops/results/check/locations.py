"""Where evidence stands: the file, and the line where it is a log, under the run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vflops.record.formats.job import JobRecord
from vflops.record.formats.measurement import Measurement
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.workloads.automl.candidate_history import CandidateHistory

RUN_LOG = "jobs/0/0/events.jsonl"
"""Of the run itself: what was planned, measured and counted."""


def job_file(record: JobRecord) -> str:
    """What a job was told."""
    return f"jobs/{record.job}/job.json"


def noted(job: TrainedJob, *kinds: str) -> str:
    """The newest event of one of these kinds; what the job was told where there is none."""
    found = (e for log in reversed(job.logs) for e in reversed(log.events) if e.kind in kinds)
    return next((event.source for event in found), job_file(job.record))


def logged(contents: Contents, kind: str) -> str:
    """The newest event of a kind in the run's own log, or that log."""
    events = contents.history.events(kind)
    return events[-1].source if events else RUN_LOG


def measured_at(contents: Contents, item: Measurement) -> str:
    """The newest measurement of that ceiling."""
    found = (
        event.source
        for event in reversed(contents.history.events("measurement"))
        if (event.data.get("benchmark"), event.data.get("case"), event.data.get("precision"))
        == item.key
    )
    return next(found, RUN_LOG)


def of_candidate(
    members: Sequence[TrainedJob],
    story: CandidateHistory,
    kinds: Sequence[str],
    facts: Mapping[str, object],
) -> str:
    """The newest event of one of these kinds, with these facts, about a candidate of a search.

    Where training stands is told of the candidate that was begun last, without its name.
    """
    name, now = story.begun.candidate, None
    own = []
    for event in (event for log in members[story.worker].logs for event in log.events):
        now = event.data.get("candidate", now)
        if now == name:
            own.append(event)
    fit = [e for e in own if e.kind in kinds and all(e.data.get(k) == facts[k] for k in facts)]
    return (fit or own)[-1].source
