"""Rows and sentences of the report: the jobs of a run, and the level that it may claim."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.record.readout.contents import Contents
from vflops.results.check.level import Difference, Levels
from vflops.results.score.score_file import Score
from vflops.units import seconds

JOBS = ("job", "workload", "which", "ranks", "device", "state", "attempts", "time")
"""The columns of ``job_rows``."""


def job_rows(contents: Contents, scored: Score) -> list[tuple[str, ...]]:
    """Return one row per job of the run, with the columns of ``JOBS``."""
    complete_jobs = {training.job: training.complete for training in scored.trainings}
    rows: list[tuple[str, ...]] = []
    for job in sorted((*contents.training_jobs, *contents.workers), key=lambda job: job.record.job):
        record, started = job.record, job.started
        which = f"seed {record.seed}"
        if record.worker is not None:
            which = f"worker {record.worker.worker + 1}"
        elif record.bag is not None:
            which = f"model {record.bag.model + 1}"
        complete = complete_jobs.get(record.job, job.finished is not None)
        state = "finished" if complete else "unfinished" if job.logs else "not started"
        rows.append(
            (
                str(record.job),
                record.workload,
                which,
                str(record.ranks),
                started.device_name if started else "—",
                state,
                str(len(job.logs)),
                seconds(job.wall_s) if job.logs else "—",
            )
        )
    return rows


def level_sentence(levels: Levels) -> str:
    """Return a sentence on the level that the run may claim, or why it may claim none."""
    if levels.reason is not None:
        return ""
    if levels.claim is not None:
        differences = _first_differences(levels.deciding)
        return f"It may claim the level {levels.claim}{f' ({differences})' if differences else ''}."
    differences = _first_differences(levels.layers[-1].differences)
    return f"It may claim no level of the papers: its problem differs from theirs ({differences})."


def _first_differences(differences: Sequence[Difference], limit: int = 3) -> str:
    more = f" and {len(differences) - limit} more" if len(differences) > limit else ""
    return "; ".join(map(str, differences[:limit])) + more
