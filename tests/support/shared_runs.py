"""Trainings by several ranks, written by hand: what they say of stages and of their exchange."""

from __future__ import annotations

from typing import Any

from tests.support.trained_runs import HandmadeRun, Note, course, job, started
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord

MIXED: dict[str, Any] = {
    "ranks": 4,
    "accumulate": 5,
    "parallel": {"mode": "mixed", "mesh": [2, 2]},
    "communication": {"precision": "int8"},
}
"""Two copies of a pipeline of two ranks."""


def stages(**facts: Any) -> Note:
    """Of two ranks that share a copy; the second has a quarter of the work."""
    return "stages", {
        "operations": [3_000_000, 1_000_000],
        "ranks": 2,
        "micro_batches": 5,
        "schedule": "1f1b",
        "bubble": 0.25,
        "bubble_theory": 1 / 6,
        **facts,
    }


def exchange(**facts: Any) -> Note:
    """30 steps of a million gradients on each of two copies, in a quarter of the bytes."""
    return "exchange", {
        "mode": "all-reduce",
        "precision": "int8",
        "ranks": 2,
        "near": 1,
        "backend": "gloo",
        "algorithm": "all-gather: ring; all-to-all: pairs",
        "bytes_near": 15_000_000,
        "bytes_far": 45_000_000,
        "steps": 30,
        "elements": 60_000_000,
        **facts,
    }


def shared_job(ranks: int = 4, **train: Any) -> JobRecord:
    """The job of such a training."""
    return job(ranks=ranks, settings={"target": 0.8, "train": {"ranks": ranks, **train}})


def shared_run(run: HandmadeRun, record: JobRecord, *notes: Note, **facts: Any) -> RunFolder:
    """A training to its end that says ``notes`` after it; ``facts`` are of its beginning."""
    run.plan(record)
    _, *rest = course(0.4, 0.7, 0.88)
    began = started(ranks=record.ranks, **facts)
    run.attempt(1, 1000.0, began, *rest[:-1], *notes, rest[-1], tells=False)
    return run.folder
