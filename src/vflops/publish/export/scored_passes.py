"""What a run scored, pass by pass, as plain figures with names and units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.score_file import EnsembleScore, SearchScore, TrainingScore
from vflops.results.score.scoring import score as scored


@dataclass(frozen=True)
class Quantity:
    """What a figure is of, for those who read it without us."""

    name: str
    unit: str
    """As people write it; empty for what has none."""
    metric: str
    """As OpenMetrics names it, its unit last."""
    metric_unit: str
    help: str


QUANTITIES = (
    Quantity("wall time", "s", "wall_time_seconds", "seconds", "All time of the pass."),
    Quantity("work time", "s", "work_time_seconds", "seconds", "What FLOPS are divided by."),
    Quantity("samples trained", "", "samples_trained", "", "Samples that were trained on."),
    Quantity("epochs", "", "epochs", "", "Passes over the data."),
    Quantity("samples a second", "1/s", "samples_per_second", "", "Speed of training."),
    Quantity("quality", "", "quality", "", "Quality that was reached; of a search the error."),
    Quantity("target", "", "quality_target", "", "Quality asked for; of a search the error."),
    Quantity("penalty", "", "quality_penalty", "", "What FLOPS are multiplied with."),
    Quantity(
        "time to quality",
        "s",
        "time_to_quality_seconds",
        "seconds",
        "Until the target was reached.",
    ),
    Quantity("FLOPS", "FLOPS", "training_flops", "flops", "Operations a second."),
    Quantity(
        "VFLOPS",
        "FLOPS",
        "valid_flops",
        "flops",
        "FLOPS times the penalty of quality.",
    ),
    Quantity(
        "regulated score",
        "OPS",
        "regulated_flops",
        "flops",
        "Of a search: operations a second times -ln(error).",
    ),
    Quantity(
        "sent a step",
        "B",
        "exchanged_bytes",
        "bytes",
        "Sent by all ranks to average the gradients of a step.",
    ),
    Quantity("MFU", "", "mfu_ratio", "ratio", "FLOPS over the measured ceiling."),
    Quantity("power", "W", "power_watts", "watts", "Mean power of what was measured."),
    Quantity("energy", "J", "energy_joules", "joules", "Energy of what was measured."),
    Quantity(
        "VFLOPS a watt", "FLOPS/W", "valid_flops_per_watt", "flops_per_watt", "VFLOPS over power."
    ),
)
"""All figures that a pass may have, in the order in which they are shown."""


@dataclass(frozen=True)
class Pass:
    """A training, an ensemble or a search that was scored."""

    kind: str
    run: str
    workload: str
    job: int | None
    """None of what several jobs made together."""
    repeat: int
    facts: Mapping[str, str]
    """What tells it from others, in words."""
    figures: Mapping[str, float | None]
    """By the names of ``QUANTITIES``; None or absent: not measured."""


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
)
"""The facts that a pass may have."""


def passes(contents: Contents) -> Iterator[Pass]:
    """Everything that was scored: trainings, then ensembles, then searches."""
    score = contents.once(scored)
    for training in score.trainings:
        yield _training(score.run, training)
    for ensemble in score.ensembles:
        yield _ensemble(score.run, ensemble, _of_jobs(contents.trained, ensemble))
    for search in score.searches:
        yield _search(score.run, search, _of_jobs(contents.workers, search))


def _of_jobs(jobs: Sequence[TrainedJob], it: EnsembleScore | SearchScore) -> dict[str, str]:
    """What is known of the jobs that made something together; what differs is named in full."""
    own = [job for job in jobs if (job.record.workload, job.record.repeat) == _key(it)]
    started = [job.started for job in own if job.started is not None]
    found = {
        "data": ["synthetic" if job.record.data.synthetic else "real" for job in own],
        "device": [each.device_name for each in started],
        "precision": [each.precision for each in started],
    }
    return {name: ", ".join(dict.fromkeys(values)) for name, values in found.items()}


def _key(it: EnsembleScore | SearchScore) -> tuple[str, int]:
    return it.workload, it.repeat


def _training(run: str, it: TrainingScore) -> Pass:
    speed = it.speed
    sent = (it.shared.exchange or it.shared.within) if it.shared else None
    return Pass(
        kind="training" if it.model is None else "base model",
        run=run,
        workload=it.workload,
        job=it.job,
        repeat=it.repeat,
        facts={
            "seed": str(it.seed),
            "complete": "yes" if it.complete else "no",
            "data": "synthetic" if it.synthetic else "real",
            "device": it.device or "",
            "ranks": str(it.ranks),
            "parallel mode": it.shared.settings.mode if it.shared else "",
            "communication": f"{sent.mode} {sent.precision}" if sent else "",
            "precision": it.precision or "",
            "batch": "" if it.batch is None else str(it.batch),
            "quality is": it.quality.name,
        },
        figures={
            "wall time": it.wall_s,
            "work time": it.work_s,
            "samples trained": it.samples_trained,
            "epochs": it.epochs,
            "samples a second": speed.samples_per_s if speed else None,
            "quality": it.quality.achieved,
            "target": it.quality.target,
            "penalty": it.quality.penalty,
            "time to quality": it.quality.time_to_quality_s,
            "FLOPS": speed.flops if speed else None,
            "VFLOPS": speed.vflops if speed else None,
            "sent a step": it.shared.bytes if it.shared else None,
            "MFU": it.mfu.value,
            "power": it.power.power_w,
            "energy": it.power.energy_j,
            "VFLOPS a watt": it.vflops_per_watt,
        },
    )


def _ensemble(run: str, it: EnsembleScore, jobs: Mapping[str, str]) -> Pass:
    facts = {**jobs, "complete": "no" if it.partial else "yes", "quality is": it.quality_name}
    figures = {
        "wall time": it.window_s,
        "quality": it.achieved,
        "target": it.target,
        "penalty": it.penalty,
        "FLOPS": it.flops,
        "VFLOPS": it.vflops,
        "VFLOPS a watt": it.vflops_per_watt,
    }
    return _together("ensemble", run, it, facts, figures)


def _search(run: str, it: SearchScore, jobs: Mapping[str, str]) -> Pass:
    """A search by AIPerf's rules: it has a regulated score in place of VFLOPS."""
    facts = {
        **jobs,
        "seed": str(it.seed),
        "complete": "no" if it.lost_workers else "yes",
        "ranks": str(it.ranks),
        "quality is": "error",
    }
    figures = {
        "wall time": it.duration_s,
        "quality": it.error,
        "target": it.error_limit,
        "FLOPS": it.ops_per_s,
        "regulated score": it.regulated,
    }
    return _together("search", run, it, facts, figures)


def _together(
    kind: str,
    run: str,
    it: EnsembleScore | SearchScore,
    facts: Mapping[str, str],
    figures: Mapping[str, float | None],
) -> Pass:
    """What several jobs made, with the power of all of them."""
    return Pass(
        kind=kind,
        run=run,
        workload=it.workload,
        job=None,
        repeat=it.repeat,
        facts=facts,
        figures={**figures, "power": it.power.power_w, "energy": it.power.energy_j},
    )
