"""Scaling experiments with ensembles of M models × P ranks, as in HPC AI500 V3.0."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import ValidationError

from vflops.config.parallel import ParallelSettings
from vflops.config.settings import Settings
from vflops.config.toml import parse_assignment
from vflops.metrics import flops, mean
from vflops.metrics.quality import finite_quality_factor
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import Exchanged
from vflops.record.readout.contents import Contents
from vflops.results.score.ensemble_score import training_window_s
from vflops.results.score.figure_text import number
from vflops.results.score.score_file import EnsembleScore, Score, TrainingScore
from vflops.studies.scale import scale_charts
from vflops.studies.scale.axis import Axis, checks_failed, marks
from vflops.studies.scale.scale_charts import Curve, HorizontalAxis, Row
from vflops.studies.scale.scale_result import EnsembleFigures, Kind, Point, SameBatch, Scale, Size
from vflops.units import percent, quantity, seconds

TITLES: dict[str, str] = {
    "weak": "Weak scaling",
    "bagging-vs-data": "Bagging against data parallelism",
    "trade-off": "Models against ranks",
}
"""The title of each kind of experiment."""


@dataclass(frozen=True)
class Ensembles(Axis):
    """An axis along which the number of models grows, or the number of ranks per model."""

    kind: Kind
    same_batch: SameBatch = "rank"
    job: str = "model"
    sharing: Mapping[str, str] = field(default_factory=dict)

    def changes(self, section: dict[str, Any], size: Size) -> dict[str, Any]:
        """Return the settings with the number of models and ranks of ``size``, and its batch.

        The batch of a model grows with its copies, unless ``same_batch`` is ``model``.
        """
        train, settings = section["train"], self.settings_for(size)
        batch = train["batch"]
        if self.same_batch == "rank":
            batch = (
                batch // _copies(train, {}, train["ranks"]) * _copies(train, settings, size.ranks)
            )
        return {
            "bagging.models": size.jobs,
            "models": size.jobs,
            "train.ranks": size.ranks,
            "train.batch": batch,
            **settings,
        }

    def check_size(self, settings: Settings, workload: str, size: Size) -> None:
        """Raise UsageError unless all models fit on the nodes at once."""
        from vflops.launch.factory import backend
        from vflops.launch.nodes import usable_nodes
        from vflops.launch.placement import plan

        if backend(settings.launch.on).knows_nodes:
            device = settings.workloads[workload]["train"]["device"]
            nodes = usable_nodes(settings.launch, device, size.ranks)
            plan(nodes, size.jobs, size.ranks, may_wait=False)

    def goal(self, record: JobRecord) -> tuple[str, float]:
        """Return the name of the quality measure, and its target."""
        return record.goal.quality, record.goal.target

    def figures(self, folder: RunFolder, size: Size) -> EnsembleFigures:
        """Return the means over the repeats; a single model is timed like an ensemble."""
        contents, scored = Contents(folder), Score.read(folder.score_file)
        if size.jobs > 1:
            repeats = [_ensemble_repeat(ensemble) for ensemble in scored.ensembles]
        else:
            repeats = [_single_model_repeat(contents, training) for training in scored.trainings]
        rates = [repeat.flops for repeat in repeats if repeat.flops is not None]
        factors = [r.quality_factor for r in repeats if r.quality_factor is not None]
        known, weighted = len(rates) == len(repeats), len(factors) == len(repeats)
        valid = (
            [rate * factor for rate, factor in zip(rates, factors, strict=True)]
            if known and weighted
            else []
        )
        return EnsembleFigures(
            repeats=len(repeats),
            partial=any(repeat.partial for repeat in repeats),
            attempts=max(training.attempts for training in scored.trainings),
            checks_failed=checks_failed(folder),
            window_s=round(mean([repeat.window_s for repeat in repeats]), 6),
            flops=mean(rates) if known else None,
            flops_least=min(rates) if known else None,
            flops_most=max(rates) if known else None,
            vflops=mean(valid) if valid else None,
            quality=mean([repeat.quality for repeat in repeats]),
            quality_alone=mean([repeat.alone for repeat in repeats]),
            penalty=mean(factors) if weighted else None,
            time_to_quality_s=_time_to_quality(scored.trainings),
            exchanged_bytes=_exchanged_bytes(contents),
            task="open" if any(t.task == "open" for t in scored.trainings) else "closed",
            emulated=next(
                (training.emulated for training in scored.trainings if training.emulated), None
            ),
        )

    @property
    def title(self) -> str:
        """The title of the kind of experiment."""
        return TITLES[self.kind]

    def table(self, scale: Scale) -> list[Sequence[str]]:
        """Return speed, time and quality of every point."""
        quality = scale.quality_name or "quality"
        valid = scale.vflops_name
        names = ("slots", "FLOPS", "efficiency", valid, "efficiency", "time", quality, "alone")
        rows: list[Sequence[str]] = [("M × P", *names)]
        for point in scale.points:
            size, figures = (f"{point.jobs} × {point.ranks}", str(point.size.slots)), point.figures
            if not isinstance(figures, EnsembleFigures):
                rows.append((*size, *("—",) * 6, "not complete"))
                continue
            rows.append(
                (
                    *size,
                    quantity(figures.flops, "FLOPS"),
                    percent(figures.efficiency),
                    quantity(figures.vflops, "VFLOPS"),
                    percent(figures.efficiency_valid),
                    seconds(figures.window_s),
                    number(figures.quality),
                    number(figures.quality_alone) + marks(figures),
                )
            )
        return rows

    def curves(self, scale: Scale) -> list[Curve]:
        """Return charts of speed, time and quality over slots or, for a trade-off, over M × P."""
        if not any(point.figures for point in scale.points):
            return []
        quality = scale.quality_name or "quality"
        speed = self._rows(scale, lambda f: f.flops)
        valid = self._rows(scale, lambda f: f.vflops)
        time = self._rows(scale, lambda f: f.window_s)
        qualities = self._rows(scale, lambda f: f.quality)
        across = HorizontalAxis("models × ranks")
        if self.kind != "trade-off":  # all points of a trade-off have the same number of slots
            slots = sorted({point.size.slots for point in scale.points})
            across = HorizontalAxis("slots: models × ranks", tuple(slots))
            speed += scale_charts.ideal(scale, "rate", slots[-1])
            valid += scale_charts.ideal(scale, "valid", slots[-1])
        target = None if scale.target is None else ("target", scale.target)
        quality_chart = scale_charts.lines(qualities, across, quality, target=target)
        return [
            Curve("flops", "FLOPS", scale_charts.lines(speed, across, "FLOPS", rate=True)),
            Curve(
                "vflops", scale.vflops_name, scale_charts.lines(valid, across, "VFLOPS", rate=True)
            ),
            Curve("time", "Time", scale_charts.lines(time, across, "seconds")),
            Curve("quality", f"Quality: {quality}", quality_chart),
        ]

    def note(self, scale: Scale) -> str:
        """Return an explanation of the columns of the table."""
        base = f"{scale.base.jobs} × {scale.base.ranks}"
        return (
            "Slots: M × P, equation 5 of HPC AI500 V3.0. Time: from the first step of the first"
            " model to the end of the last model’s training, including its last evaluation. FLOPS:"
            " operations of all models divided by that time. Efficiency: FLOPS (VFLOPS) per slot"
            f" relative to {base}. Quality: that of the ensemble; alone: the mean of single models."
            f" If a point was repeated, figures are means.{scale.open_note}"
        )

    def _rows(self, scale: Scale, value: Callable[[EnsembleFigures], float | None]) -> list[Row]:
        return [
            Row(self._at(point), value(figures), series)
            for point, figures in scale.completed(EnsembleFigures)
            for series in self._series(point)
        ]

    def _at(self, point: Point) -> int | str:
        if self.kind == "trade-off":
            return f"{point.jobs} × {point.ranks}"
        return point.size.slots

    def _series(self, point: Point) -> list[str]:
        """Return the names of the curves that a point is on; one model with one rank is on both."""
        if self.kind != "bagging-vs-data":
            return ["measured"]
        both = (point.ranks == 1, "bagging, P = 1"), (point.jobs == 1, "data parallel, M = 1")
        return [name for is_on, name in both if is_on]


def _copies(train: Mapping[str, Any], changes: Mapping[str, str], ranks: int) -> int:
    """Return the number of copies of a model: ranks, or groups of ranks, with separate samples."""
    parallel = dict(train["parallel"])
    for key, value in changes.items():
        section, _, name = key.removeprefix("train.").rpartition(".")
        if section == "parallel":
            parallel |= parse_assignment(f"{name}={value}", example="mode=sharded")
    try:
        return ParallelSettings.model_validate(parallel).shares(ranks)
    except ValidationError:  # raised again, with a message, when the point's settings are loaded
        return ranks


class _Repeat(NamedTuple):
    """The figures of one repeat."""

    window_s: float
    flops: float | None
    quality_factor: float | None
    quality: float
    alone: float
    partial: bool = False


def _ensemble_repeat(score: EnsembleScore) -> _Repeat:
    return _Repeat(
        score.window_s,
        score.flops,
        score.penalty,
        score.achieved,
        score.mean_quality,
        score.partial,
    )


def _single_model_repeat(contents: Contents, score: TrainingScore) -> _Repeat:
    """Return the figures of a single model, timed like an ensemble from its first step on."""
    (trained,) = (job for job in contents.training_jobs if job.record.job == score.job)
    window_s, quality = training_window_s([trained]), score.quality
    achieved = quality.achieved or 0.0
    factor = finite_quality_factor(
        achieved=achieved, target=quality.target, exponent=quality.exponent, better=quality.better
    )
    known = score.speed is not None and window_s > 0
    rate = flops(ops=score.speed.ops_training, time_s=window_s) if score.speed and known else None
    return _Repeat(window_s, rate, factor, achieved, achieved)


def _time_to_quality(scores: Sequence[TrainingScore]) -> float | None:
    """Return the slowest model's time, as a mean over repeats; None if one missed the target."""
    slowest: dict[int, float] = {}
    for score in scores:
        time_s = score.quality.time_to_quality_s
        if time_s is None:
            return None
        slowest[score.repeat] = max(time_s, slowest.get(score.repeat, 0.0))
    return mean(list(slowest.values()))


def _exchanged_bytes(contents: Contents) -> float | None:
    """Return the bytes that the ranks of a model send per step; None if they were not counted.

    The stages of a pipeline record their bytes separately.
    """
    per_step: list[float] = []
    for trained in contents.training_jobs:
        events = contents.history.events("exchange", trained.record.job)
        exchanges = [event.payload(Exchanged) for event in events]
        steps = max((exchange.steps for exchange in exchanges), default=0)
        if steps:
            per_step.append(
                sum(exchange.bytes_near + exchange.bytes_far for exchange in exchanges) / steps
            )
    return mean(per_step) if per_step else None
