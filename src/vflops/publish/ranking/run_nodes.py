"""The nodes that trained a run, by the records that they wrote, and how many ranks ran at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vflops.record.formats.node import NodeRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.timeline import Timeline
from vflops.record.readout.trained_job import TrainedJob


def run_nodes(contents: Contents, jobs: Collection[int] | None = None) -> list[NodeRecord]:
    """Return one record per node that trained, sorted by name; ``jobs`` restricts the jobs.

    Nodes are told apart by the scheduler's names: two of them can be on one machine.
    """
    nodes: dict[str, NodeRecord] = {}
    for job in (*contents.training_jobs, *contents.workers):
        if jobs is None or job.record.job in jobs:
            for node in _nodes_of(job):
                nodes.setdefault(node.name, node)
    return [nodes[name] for name in sorted(nodes)]


def ranks_at_once(jobs: Sequence[TrainedJob]) -> int:
    """Return the largest number of ranks that trained at the same time."""
    spans = {(part.span_s, part.job) for parts in Timeline(jobs).parts.values() for part in parts}
    ranks = {job.record.job: job.record.ranks for job in jobs}
    changes = [(start_s, ranks[job]) for (start_s, _), job in spans]
    changes += [(end_s, -ranks[job]) for (_, end_s), job in spans]
    running = most = 0
    for _, change in sorted(changes):  # at equal times, ends come before starts
        running += change
        most = max(most, running)
    return most


def _nodes_of(job: TrainedJob) -> list[NodeRecord]:
    attempts = zip(job.folders, job.attempts, strict=True)
    return [
        node
        for folder, attempt in attempts
        if attempt.has_progress
        for node in job.nodes_of(folder)
    ]
