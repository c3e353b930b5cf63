"""The times of equal pieces of work, and which nodes stand out by them.

All models of an ensemble train on as many samples, so a piece is a number of samples. Its time is
that of training and of waiting for data: start-up, compilation, evaluation and checkpoints are not
in it, and neither is anything before the first note.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from vflops.metrics.outliers import LEAST_PIECES, LEAST_PLACES, outliers
from vflops.record.readout.job_nodes import JobLocation
from vflops.record.readout.trained_job import PROGRESS_EVENTS, Attempt, TrainedJob
from vflops.results.score.node_verdicts import NodeNamed, NodesNamed

_MOST_NOTES = 256
"""Of a job that are read: a day has 86 400."""
_PHASES = ("data", "training")

Course = list[tuple[int, float]]
"""Samples that were trained on, and the seconds of work that took, note by note."""


def named_nodes(members: Sequence[TrainedJob], where: dict[int, JobLocation]) -> NodesNamed:
    """The places that are slow or noisy beyond chance, or why that cannot be told."""
    times = {job: each for job, each in pieces(members).items() if len(each) >= LEAST_PIECES}
    jobs: dict[tuple[str, ...], list[int]] = {}
    for member in members:
        job = member.record.job
        if job in times and where[job].names:
            jobs.setdefault(where[job].names, []).append(job)
    fewest = min((len(times[job]) for group in jobs.values() for job in group), default=0)
    if len(jobs) < LEAST_PLACES:
        reason = _too_few(members, where, times)
        return NodesNamed(places=len(jobs), pieces=fewest, reason=reason)
    groups = list(jobs.items())
    found = outliers([[times[job] for job in group] for _, group in groups])
    named = (
        NodeNamed(
            nodes=groups[each.place][0],
            jobs=tuple(groups[each.place][1]),
            trait=each.trait,
            excess=each.excess,
        )
        for each in found
    )
    return NodesNamed(places=len(jobs), pieces=fewest, named=tuple(named))


def pieces(members: Sequence[TrainedJob]) -> dict[int, list[float]]:
    """Seconds of every piece of work by job, as many samples each in all of them.

    A piece is as large as the largest step between two notes: each has a time of its own.
    """
    courses = {each.record.job: _course(each.attempts[-1]) for each in members if each.attempts}
    steps = [after[0] - before[0] for each in courses.values() for before, after in pairwise(each)]
    return {job: _cut(course, max(steps)) for job, course in courses.items()} if steps else {}


def _course(attempt: Attempt) -> Course:
    events = [event for event in attempt.log.events if event.kind in PROGRESS_EVENTS]
    found: Course = []
    for event in events[:: len(events) // _MOST_NOTES + 1]:
        note = event.payload(PROGRESS_EVENTS[event.kind])
        samples = note.samples - note.samples_compiling
        if not found or samples > found[-1][0]:
            found.append((samples, sum(note.phases.get(phase, 0.0) for phase in _PHASES)))
    return found


def _cut(course: Course, size: int) -> list[float]:
    """The seconds between marks ``size`` samples apart; between notes work goes on evenly."""
    marks: list[float] = []
    for (samples, start_s), (after, end_s) in pairwise(course):
        while (mark := course[0][0] + len(marks) * size) <= after:
            marks.append(start_s + (end_s - start_s) * (mark - samples) / (after - samples))
    return [after - before for before, after in pairwise(marks) if after > before]


def _too_few(
    members: Sequence[TrainedJob], where: dict[int, JobLocation], times: dict[int, list[float]]
) -> str:
    known = {where[member.record.job].names for member in members} - {()}
    if not known:
        return "the record does not say where each model was trained"
    if len(known) < LEAST_PLACES:
        return f"at least {LEAST_PLACES} places are needed, and there are {len(known)}"
    enough = {where[job].names for job in times} - {()}
    return (
        f"at least {LEAST_PIECES} times of equal work are needed of each of {LEAST_PLACES}, and "
        f"{len(enough)} gave as many: train for longer"
    )
