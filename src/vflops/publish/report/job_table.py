"""Rows and sentences of the report: the jobs of a run, and the level that it may claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results import many_trainings
from vflops.results.check.level import Difference, Levels
from vflops.results.score.score_file import Score
from vflops.results.score.score_tables import ensemble_number
from vflops.units import seconds

JOBS = ("job", "workload", "which", "ranks", "device", "state", "attempts", "time")
"""The columns of ``JobTable.rows``."""


@dataclass(frozen=True)
class JobTable:
    """The jobs of a run; if there are many, only those that differ from the others."""

    rows: list[tuple[str, ...]]
    jobs: int
    """The number of all jobs."""

    @property
    def note(self) -> str:
        """A sentence on which jobs are shown; empty if it is all of them."""
        if len(self.rows) == self.jobs:
            return ""
        return (
            f"{len(self.rows)} of {self.jobs:,} jobs: those that did not finish or took several "
            "attempts, the extremes, the medians and outliers. score.json has the figures of all."
        )


def job_table(contents: Contents, scored: Score) -> JobTable:
    """Return the jobs of a run."""
    jobs = sorted((*contents.training_jobs, *contents.workers), key=lambda job: job.record.job)
    shown = jobs
    if len(jobs) > many_trainings.MANY:
        chosen = _differing_jobs(jobs, scored)
        shown = [job for job in jobs if job.record.job in chosen]
    return JobTable(_rows(shown, scored), len(jobs))


def _differing_jobs(jobs: Sequence[TrainedJob], scored: Score) -> set[int]:
    """Return the numbers of the jobs to show if there are many."""
    groups = many_trainings.by_workload(scored.trainings)
    examples = [
        training.job
        for group in groups
        for training in many_trainings.examples(group, many_trainings.MANY)
    ]
    unusual = [job.record.job for job in jobs if job.finished is None or len(job.logs) > 1]
    workers = [job.record.job for job in jobs if job.record.worker is not None]
    return {
        *examples,
        *workers[: many_trainings.MANY],
        *unusual[: many_trainings.MANY],
    }


def _rows(jobs: Sequence[TrainedJob], scored: Score) -> list[tuple[str, ...]]:
    """Return one row per job, with the columns of ``JOBS``."""
    complete_jobs = {training.job: training.complete for training in scored.trainings}
    rows: list[tuple[str, ...]] = []
    for job in jobs:
        record, started = job.record, job.started
        which = f"seed {record.seed}"
        if record.worker is not None:
            which = f"worker {record.worker.worker + 1}"
        elif record.bag is not None:
            ensemble = ensemble_number(scored, record.workload, record.repeat)
            which = ", ".join(filter(None, (ensemble, f"model {record.bag.model + 1}")))
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
