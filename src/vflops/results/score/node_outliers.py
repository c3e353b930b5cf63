"""Nodes of an ensemble that are slow or noisy, from the times of equal pieces of work.

All models of an ensemble do the same work per sample, so a piece of work is a fixed number of
samples. Its time covers training and waiting for data, but not start-up, compilation, evaluation,
checkpoints, or anything before the first progress event.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from vflops.metrics.outliers import MIN_NODES, MIN_PIECES, outliers
from vflops.metrics.summation import sum_in_order
from vflops.record.files.document import Data
from vflops.record.readout.job_nodes import JobNodes
from vflops.record.readout.trained_job import PROGRESS_EVENTS, Attempt, TrainedJob

_MAX_EVENTS = 256
"""The maximum number of progress events read per job, which may write one per second."""
_PHASES = ("data", "training")

Progress = list[tuple[int, float]]
"""For each progress event, the samples trained on so far and the seconds of work."""


class NodeNamed(Data):
    """An outlier: a node, the nodes of a job, or a part of the only machine."""

    nodes: tuple[str, ...]
    jobs: tuple[int, ...]
    trait: Literal["slow", "noisy"]
    excess: float
    """If slow: its typical time / the typical time of all nodes − 1. If noisy: its spread minus the
    typical spread of all nodes."""


class NodesNamed(Data):
    """Which nodes are slow or noisy beyond chance."""

    places: int
    """The number of nodes that were compared."""
    pieces: int
    """The minimum number of timed pieces of work over all jobs."""
    named: tuple[NodeNamed, ...] = ()
    reason: str | None = None
    """Why nodes cannot be compared; None if they were."""


def node_outliers(members: Sequence[TrainedJob], nodes: dict[int, JobNodes]) -> NodesNamed:
    """Return the nodes that are slow or noisy beyond chance, or why they cannot be compared."""
    times = {
        job: times_s for job, times_s in piece_times(members).items() if len(times_s) >= MIN_PIECES
    }
    jobs: dict[tuple[str, ...], list[int]] = {}
    for member in members:
        job = member.record.job
        if job in times and job in nodes and nodes[job].names:
            jobs.setdefault(nodes[job].names, []).append(job)
    fewest = min((len(times[job]) for group in jobs.values() for job in group), default=0)
    if len(jobs) < MIN_NODES:
        reason = _too_few_reason(members, nodes, times)
        return NodesNamed(places=len(jobs), pieces=fewest, reason=reason)
    groups = list(jobs.items())
    named = (
        NodeNamed(
            nodes=groups[outlier.node][0],
            jobs=tuple(groups[outlier.node][1]),
            trait=outlier.trait,
            excess=outlier.excess,
        )
        for outlier in outliers([[times[job] for job in group] for _, group in groups])
    )
    return NodesNamed(places=len(jobs), pieces=fewest, named=tuple(named))


def piece_times(members: Sequence[TrainedJob]) -> dict[int, list[float]]:
    """Return the seconds of every piece of work by job. All pieces have the same size.

    The size is the largest number of samples between two progress events, so that no piece lies
    entirely between two events.
    """
    progress = {
        member.record.job: _progress(member.attempts[-1]) for member in members if member.attempts
    }
    steps = [
        after[0] - before[0] for points in progress.values() for before, after in pairwise(points)
    ]
    return (
        {job: _piece_seconds(points, max(steps)) for job, points in progress.items()}
        if steps
        else {}
    )


def _progress(attempt: Attempt) -> Progress:
    events = [event for event in attempt.log.events if event.kind in PROGRESS_EVENTS]
    points: Progress = []
    for event in events[:: len(events) // _MAX_EVENTS + 1]:
        update = event.payload(PROGRESS_EVENTS[event.kind])
        samples = update.samples - update.samples_compiling
        if not points or samples > points[-1][0]:
            points.append(
                (samples, sum_in_order(update.phases.get(phase, 0.0) for phase in _PHASES))
            )
    return points


def _piece_seconds(points: Progress, size: int) -> list[float]:
    """Return the seconds between marks ``size`` samples apart, interpolated linearly."""
    marks: list[float] = []
    for (samples, start_s), (after, end_s) in pairwise(points):
        while (mark := points[0][0] + len(marks) * size) <= after:
            marks.append(start_s + (end_s - start_s) * (mark - samples) / (after - samples))
    return [after - before for before, after in pairwise(marks) if after > before]


def _too_few_reason(
    members: Sequence[TrainedJob], nodes: dict[int, JobNodes], times: dict[int, list[float]]
) -> str:
    known = {place.names for place in nodes.values()} - {()}
    if not known:
        return "the record does not say where each model was trained"
    if len(known) < MIN_NODES:
        return f"at least {MIN_NODES} places are needed, and there are {len(known)}"
    enough = {nodes[job].names for job in times if job in nodes} - {()}
    return (
        f"at least {MIN_PIECES} times of equal work are needed of each of {MIN_NODES}, and "
        f"{len(enough)} gave as many: train for longer"
    )
