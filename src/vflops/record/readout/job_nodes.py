"""Where the jobs of an ensemble were trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vflops.record.formats.job_events import JobBegun
from vflops.record.formats.node import node_records
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob


@dataclass(frozen=True)
class Place:
    """What a verdict about a job is a verdict about; nothing where it is not known."""

    names: tuple[str, ...] = ()
    """Its nodes; on the only machine of an ensemble the part of it that was the job's."""
    nodes: tuple[str, ...] = ()


def places(contents: Contents, members: Sequence[TrainedJob]) -> dict[int, Place]:
    """The place of the newest attempt at each job."""
    nodes = {
        member.record.job: tuple(node.name for node in node_records(member.folders[-1]))
        for member in members
        if member.folders
    }
    if len({name for names in nodes.values() for name in names}) > 1:
        return {job: Place(names, names) for job, names in nodes.items()}
    begun = [event.payload(JobBegun) for event in contents.history.events("job-begun")]
    parts = {each.job: each.where for each in begun if each.launcher == "local"}
    found = {}
    for job, names in nodes.items():
        part = [f"{parts[job]} of {name}" for name in names or ("this machine",) if job in parts]
        found[job] = Place(tuple(part) or names, names)
    return found
