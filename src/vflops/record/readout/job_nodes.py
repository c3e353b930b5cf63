"""The nodes on which the jobs of an ensemble were trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vflops.record.formats.job_events import JobBegun
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob


@dataclass(frozen=True)
class JobNodes:
    """The nodes of a job; empty if they are not known."""

    names: tuple[str, ...] = ()
    """The names in results; if all jobs share one machine, the part of it that the job used."""
    nodes: tuple[str, ...] = ()


def nodes_by_job(contents: Contents, members: Sequence[TrainedJob]) -> dict[int, JobNodes]:
    """Return the nodes of the newest attempt of each job."""
    nodes = {
        member.record.job: tuple(node.name for node in member.nodes_of(member.folders[-1]))
        for member in members
        if member.folders
    }
    if len({name for names in nodes.values() for name in names}) > 1:
        return {job: JobNodes(names, names) for job, names in nodes.items()}
    begun = [event.payload(JobBegun) for event in contents.history.events("job-begun")]
    parts = {job.job: job.where for job in begun if job.launcher == "local"}
    by_job = {}
    for job, names in nodes.items():
        part = [f"{parts[job]} of {name}" for name in names or ("this machine",) if job in parts]
        by_job[job] = JobNodes(tuple(part) or names, names)
    return by_job
