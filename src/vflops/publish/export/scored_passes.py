"""Scored passes: the training runs, ensembles and searches of a run, with named figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vflops.record.formats.job import data_kind
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.figures import (
    Figures,
    Key,
    ensemble_figures,
    search_figures,
    training_figures,
)
from vflops.results.score.score_file import EnsembleScore, Score, SearchScore, TrainingScore
from vflops.results.score.scoring import score as scored


@dataclass(frozen=True)
class Quantity:
    """A figure, with its names in the export formats."""

    key: Key
    name: str
    """The name of its column."""
    unit: str
    """The unit, or an empty string."""
    metric: str
    """The OpenMetrics name, which ends with the unit."""
    metric_unit: str
    help: str


QUANTITIES = (
    Quantity(
        "wall_time", "wall time", "s", "wall_time_seconds", "seconds", "Wall time of the pass."
    ),
    Quantity(
        "work_time",
        "work time",
        "s",
        "work_time_seconds",
        "seconds",
        "Time by which operations are divided.",
    ),
    Quantity(
        "samples_trained",
        "samples trained",
        "",
        "samples_trained",
        "",
        "Samples that were trained on.",
    ),
    Quantity("epochs", "epochs", "", "epochs", "", "Passes over the training data."),
    Quantity(
        "throughput", "samples a second", "1/s", "samples_per_second", "", "Speed of training."
    ),
    Quantity(
        "unit_throughput",
        "units a second",
        "1/s",
        "sample_units_per_second",
        "",
        "Speed of training in units of samples, such as tokens.",
    ),
    Quantity(
        "quality",
        "quality",
        "",
        "quality",
        "",
        "Quality that was reached; for a search, the error.",
    ),
    Quantity(
        "target",
        "target",
        "",
        "quality_target",
        "",
        "Target quality; for a search, the target error.",
    ),
    Quantity(
        "quality_factor",
        "penalty",
        "",
        "quality_penalty",
        "",
        "Factor by which FLOPS are multiplied, at most 1.",
    ),
    Quantity(
        "quality_factor_published",
        "penalty as published",
        "",
        "quality_penalty_as_published",
        "",
        "The same factor as published, which exceeds 1 above the target.",
    ),
    Quantity(
        "time_to_quality",
        "time to quality",
        "s",
        "time_to_quality_seconds",
        "seconds",
        "Time until the target was reached.",
    ),
    Quantity("flops", "FLOPS", "FLOPS", "training_flops", "flops", "Operations per second."),
    Quantity(
        "vflops",
        "VFLOPS",
        "FLOPS",
        "valid_flops",
        "flops",
        "FLOPS times the quality factor, which is at most 1.",
    ),
    Quantity(
        "vflops_published",
        "VFLOPS as published",
        "FLOPS",
        "valid_as_published_flops",
        "flops",
        "FLOPS times the quality factor as published.",
    ),
    Quantity(
        "open_vflops",
        "open VFLOPS",
        "FLOPS",
        "open_valid_flops",
        "flops",
        "FLOPS times the quality factor, at most 1, of an open task: not comparable.",
    ),
    Quantity(
        "regulated",
        "regulated score",
        "OPS",
        "regulated_flops",
        "flops",
        "Operations per second of a search times -ln(error).",
    ),
    Quantity(
        "bytes_per_step",
        "sent a step",
        "B",
        "exchanged_bytes",
        "bytes",
        "Bytes sent per step, summed over all ranks.",
    ),
    Quantity("mfu", "MFU", "", "mfu_ratio", "ratio", "Executed FLOPS over the measured ceiling."),
    Quantity("power", "power", "W", "power_watts", "watts", "Mean power of the measured parts."),
    Quantity("energy", "energy", "J", "energy_joules", "joules", "Energy of the measured parts."),
    Quantity(
        "vflops_per_watt",
        "VFLOPS a watt",
        "FLOPS/W",
        "valid_flops_per_watt",
        "flops_per_watt",
        "VFLOPS with a factor of at most 1 over power.",
    ),
    Quantity(
        "open_vflops_per_watt",
        "open VFLOPS a watt",
        "FLOPS/W",
        "open_valid_flops_per_watt",
        "flops_per_watt",
        "VFLOPS of an open task over power.",
    ),
)
"""All figures that a pass may have, in the order in which they are exported."""


@dataclass(frozen=True)
class Pass:
    """A training run, an ensemble or a search that was scored."""

    kind: str
    run: str
    workload: str
    job: int | None
    """The job; None for an ensemble or a search, which has several."""
    repeat: int
    facts: Mapping[str, str]
    """Descriptive values by the names in ``FACTS``."""
    figures: Mapping[str, float | None]
    """Values by the names in ``QUANTITIES``; None or absent if not measured."""


FACTS = (
    "seed",
    "complete",
    "data",
    "device",
    "ranks",
    "parallel mode",
    "communication",
    "precision",
    "batch",
    "quality is",
    "task",
    "rehearsal",
)
"""The facts that a pass may have."""


def passes(contents: Contents) -> Iterator[Pass]:
    """Yield the scored training runs, then ensembles, then searches."""
    score = contents.once(scored)
    for training in score.trainings:
        facts = {
            **_training_facts(training),
            "task": _task(score, training.workload),
            **_rehearsal(score),
        }
        yield _pass(score.run, training_figures(training), facts)
    for ensemble in score.ensembles:
        facts = {
            **_job_facts(contents.training_jobs, ensemble),
            "complete": "no" if ensemble.partial else "yes",
            "quality is": ensemble.quality_name,
            "task": _task(score, ensemble.workload),
            **_rehearsal(score),
        }
        yield _pass(score.run, ensemble_figures(score, ensemble), facts)
    for search in score.searches:
        facts = {
            **_job_facts(contents.workers, search),
            "seed": str(search.seed),
            "complete": "no" if search.lost_workers else "yes",
            "ranks": str(search.ranks),
            "quality is": "error",
            "task": _task(score, search.workload),
            **_rehearsal(score),
        }
        yield _pass(score.run, search_figures(search), facts)


def _rehearsal(score: Score) -> dict[str, str]:
    return {"rehearsal": "yes" if score.rehearsal else "no"}


def _task(score: Score, workload: str) -> str:
    """Return whether the task of a workload is closed, and its digest."""
    task = score.task(workload)
    return "" if task is None else f"{task.kind} {task.digest or ''}".strip()


def _pass(run: str, figures: Figures, facts: Mapping[str, str]) -> Pass:
    subject = figures["flops"].subject
    return Pass(
        kind=subject.kind,
        run=run,
        workload=subject.workload,
        job=subject.job,
        repeat=subject.repeat,
        facts=facts,
        figures={
            quantity.name: figures[quantity.key].value
            for quantity in QUANTITIES
            if quantity.key in figures
        },
    )


def _job_facts(
    jobs: Sequence[TrainedJob], scored_repeat: EnsembleScore | SearchScore
) -> dict[str, str]:
    """Return the facts of the jobs behind a score; differing values are all listed."""
    repeat = scored_repeat.workload, scored_repeat.repeat
    members = [job for job in jobs if (job.record.workload, job.record.repeat) == repeat]
    started = [job.started for job in members if job.started is not None]
    facts: dict[str, list[str]] = {
        "data": [data_kind(job.record.data.synthetic) for job in members],
        "device": [start.device_name for start in started],
        "precision": [start.precision for start in started],
    }
    return {name: ", ".join(dict.fromkeys(values)) for name, values in facts.items()}


def _training_facts(training: TrainingScore) -> dict[str, str]:
    shared = training.shared
    exchange = (shared.exchange or shared.within) if shared else None
    return {
        "seed": str(training.seed),
        "complete": "yes" if training.complete else "no",
        "data": data_kind(training.synthetic),
        "device": training.device or "",
        "ranks": str(training.ranks),
        "parallel mode": shared.settings.mode if shared else "",
        "communication": f"{exchange.mode} {exchange.precision}" if exchange else "",
        "precision": training.precision or "",
        "batch": "" if training.batch is None else str(training.batch),
        "quality is": training.quality.name,
    }
