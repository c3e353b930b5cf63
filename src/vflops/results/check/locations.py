"""Locations of evidence: a path in the run folder, with the line number for logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vflops.record.formats.job import JobRecord
from vflops.record.formats.measurement import Measurement
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.workloads.automl.candidate_history import CandidateHistory

RUN_LOG = "jobs/0/0/events.jsonl"
"""The log of the run itself, which records what was planned, measured and counted."""


def job_file(record: JobRecord) -> str:
    """Return the path of a job's ``job.json``."""
    return f"jobs/{record.job}/job.json"


def event_location(job: TrainedJob, *kinds: str) -> str:
    """Return the location of the newest event of these kinds, or else the job file."""
    events = (e for log in reversed(job.logs) for e in reversed(log.events) if e.kind in kinds)
    return next((event.source for event in events), job_file(job.record))


def run_event_location(contents: Contents, kind: str) -> str:
    """Return the location of the newest event of a kind in the run's log, or else the log."""
    events = contents.history.events(kind)
    return events[-1].source if events else RUN_LOG


def measurement_location(contents: Contents, item: Measurement) -> str:
    """Return the location of the newest measurement of a ceiling."""
    names = ("benchmark", "case", "precision", "kind")
    sources = (
        event.source
        for event in reversed(contents.history.events("measurement"))
        if tuple(map(event.data.get, names)) == (*item.key, item.kind)
    )
    return next(sources, RUN_LOG)


def candidate_event_location(
    members: Sequence[TrainedJob],
    history: CandidateHistory,
    kinds: Sequence[str],
    facts: Mapping[str, object],
) -> str:
    """Return the location of the newest event about a candidate with these kinds and facts.

    Progress events do not name their candidate. They belong to the one that started last.
    """
    name, current = history.begun.candidate, None
    events = []
    for event in (event for log in members[history.worker].logs for event in log.events):
        current = event.data.get("candidate", current)
        if current == name:
            events.append(event)
    matching = [
        event
        for event in events
        if event.kind in kinds and all(event.data.get(key) == facts[key] for key in facts)
    ]
    return (matching or events)[-1].source
