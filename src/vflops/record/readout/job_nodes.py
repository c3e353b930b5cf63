"""Where the jobs of an ensemble were trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vflops.record.formats.job_events import JobBegun
from vflops.record.formats.node import node_records
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob


@dataclass(frozen=True)
class JobLocation:
    """The nodes of a job, for verdicts about it; empty if they are not known."""

    names: tuple[str, ...] = ()
    """Its nodes; if all jobs ran on one machine, the job's part of it."""
    nodes: tuple[str, ...] = ()


def job_locations(contents: Contents, members: Sequence[TrainedJob]) -> dict[int, JobLocation]:
    """Return the location of the newest attempt at each job."""
    nodes = {
        member.record.job: tuple(node.name for node in node_records(member.folders[-1]))
        for member in members
        if member.folders
    }
    if len({name for names in nodes.values() for name in names}) > 1:
        return {job: JobLocation(names, names) for job, names in nodes.items()}
    begun = [event.payload(JobBegun) for event in contents.history.events("job-begun")]
    parts = {event.job: event.where for event in begun if event.launcher == "local"}
    locations = {}
    for job, names in nodes.items():
        part = [f"{parts[job]} of {name}" for name in names or ("this machine",) if job in parts]
        locations[job] = JobLocation(tuple(part) or names, names)
    return locations
