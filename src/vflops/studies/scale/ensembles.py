"""Ensembles of M models × P ranks: the experiments of HPC AI500 V3.0."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import ValidationError

from vflops.config.parallel import ParallelSettings
from vflops.config.settings import Settings
from vflops.config.toml import assigned
from vflops.metrics import flops, mean, penalty
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import Exchanged
from vflops.record.readout.contents import Contents
from vflops.results.score.ensemble_score import window
from vflops.results.score.figure_text import number
from vflops.results.score.score_file import EnsembleScore, Score, TrainingScore
from vflops.studies.scale import scale_charts
from vflops.studies.scale.axis import Axis, checks_failed, marks
from vflops.studies.scale.scale_charts import Across, Curve, Row
from vflops.studies.scale.scale_result import EnsembleFigures, Kind, Point, SameBatch, Scale, Size
from vflops.units import percent, quantity, seconds

TITLES: dict[str, str] = {
    "weak": "Weak scaling",
    "bagging-vs-data": "Bagging against data parallelism",
    "trade-off": "Models against ranks",
}


@dataclass(frozen=True)
class Ensembles(Axis):
    """More models, or more ranks of a model."""

    kind: Kind
    same_batch: SameBatch = "rank"
    job: str = "model"
    sharing: Mapping[str, str] = field(default_factory=dict)

    def changes(self, section: dict[str, Any], size: Size) -> dict[str, Any]:
        """Models and ranks; the batch grows with the copies of a model unless it is to stay."""
        train, own = section["train"], self.own(size)
        batch = train["batch"]
        if self.same_batch == "rank":
            batch = batch // _copies(train, {}, train["ranks"]) * _copies(train, own, size.ranks)
        return {
            "bagging.models": size.jobs,
            "models": size.jobs,
            "train.ranks": size.ranks,
            "train.batch": batch,
            **own,
        }

    def refuse(self, settings: Settings, workload: str, size: Size) -> None:
        """Refuse models that do not all find a place at once."""
        from vflops.launch.factory import backend
        from vflops.launch.nodes import usable_nodes
        from vflops.launch.placement import plan

        if backend(settings.launch.on).knows_nodes:
            device = settings.workloads[workload]["train"]["device"]
            places = usable_nodes(settings.launch, device, size.ranks)
            plan(places, size.jobs, size.ranks, may_wait=False)

    def goal(self, record: JobRecord) -> tuple[str, float]:
        """The quality of the models, and its target."""
        return record.goal.quality, record.goal.target

    def figures(self, folder: RunFolder, size: Size) -> EnsembleFigures:
        """The means over the repeats; one model is measured as many are."""
        contents, scored = Contents(folder), Score.read(folder.score_file)
        if size.jobs > 1:
            found = [_of_ensemble(each) for each in scored.ensembles]
        else:
            found = [_of_one(contents, each) for each in scored.trainings]
        rates = [each.flops for each in found if each.flops is not None]
        valid = [each.flops * each.worth for each in found if each.flops is not None]
        known = len(rates) == len(found)
        return EnsembleFigures(
            repeats=len(found),
            partial=any(each.partial for each in found),
            attempts=max(each.attempts for each in scored.trainings),
            checks_failed=checks_failed(folder),
            window_s=round(mean([each.window_s for each in found]), 6),
            flops=mean(rates) if known else None,
            flops_least=min(rates) if known else None,
            flops_most=max(rates) if known else None,
            vflops=mean(valid) if known else None,
            quality=mean([each.quality for each in found]),
            quality_alone=mean([each.alone for each in found]),
            penalty=mean([each.worth for each in found]),
            time_to_quality_s=_time_to_quality(scored.trainings),
            exchanged_bytes=_exchanged(contents),
            emulated=next((each.emulated for each in scored.trainings if each.emulated), None),
        )

    @property
    def title(self) -> str:
        """Which of the three it is."""
        return TITLES[self.kind]

    def table(self, scale: Scale) -> list[Sequence[str]]:
        """Speed, time and quality of every pair."""
        named = scale.quality_name or "quality"
        names = ("slots", "FLOPS", "efficiency", "VFLOPS", "efficiency", "time", named, "alone")
        found: list[Sequence[str]] = [("M × P", *names)]
        for point in scale.points:
            size, own = (f"{point.jobs} × {point.ranks}", str(point.size.slots)), point.figures
            if not isinstance(own, EnsembleFigures):
                found.append((*size, *("—",) * 6, "not complete"))
                continue
            found.append(
                (
                    *size,
                    quantity(own.flops, "FLOPS"),
                    percent(own.efficiency),
                    quantity(own.vflops, "VFLOPS"),
                    percent(own.efficiency_valid),
                    seconds(own.window_s),
                    number(own.quality),
                    number(own.quality_alone) + marks(own),
                )
            )
        return found

    def curves(self, scale: Scale) -> list[Curve]:
        """Speed, time and quality over slots; of a trade-off over the pairs."""
        if not any(point.figures for point in scale.points):
            return []
        quality = scale.quality_name or "quality"
        speed = self._rows(scale, lambda own: own.flops)
        valid = self._rows(scale, lambda own: own.vflops)
        time = self._rows(scale, lambda own: own.window_s)
        good = self._rows(scale, lambda own: own.quality)
        across = Across("models × ranks")
        if self.kind != "trade-off":  # at one scale there is nothing to grow with
            slots = sorted({point.size.slots for point in scale.points})
            across = Across("slots: models × ranks", tuple(slots))
            speed += scale_charts.ideal(scale, "rate", slots[-1])
            valid += scale_charts.ideal(scale, "valid", slots[-1])
        target = None if scale.target is None else ("target", scale.target)
        judged = scale_charts.lines(good, across, quality, target=target)
        return [
            Curve("flops", "FLOPS", scale_charts.lines(speed, across, "FLOPS", rate=True)),
            Curve("vflops", "VFLOPS", scale_charts.lines(valid, across, "VFLOPS", rate=True)),
            Curve("time", "Time", scale_charts.lines(time, across, "seconds")),
            Curve("quality", f"Quality: {quality}", judged),
        ]

    def note(self, scale: Scale) -> str:
        """What the columns of the table are."""
        base = f"{scale.base.jobs} × {scale.base.ranks}"
        return (
            "Slots: M × P, equation 5. FLOPS: operations of all models over the time from the"
            " first step of the first to the end of the last one’s training, its last evaluation"
            " included; time: that window. Efficiency: FLOPS (VFLOPS) of a slot over those at"
            f" {base}. Quality: of all models together; alone: their mean by themselves. Means"
            " where a point was repeated."
        )

    def _rows(self, scale: Scale, value: Callable[[EnsembleFigures], float | None]) -> list[Row]:
        return [
            Row(self._at(point), value(own), series)
            for point, own in scale.found(EnsembleFigures)
            for series in self._series(point)
        ]

    def _at(self, point: Point) -> int | str:
        if self.kind == "trade-off":
            return f"{point.jobs} × {point.ranks}"
        return point.size.slots

    def _series(self, point: Point) -> list[str]:
        """The curves that a point is on: one model of one rank is the start of both."""
        if self.kind != "bagging-vs-data":
            return ["measured"]
        both = (point.ranks == 1, "bagging, P = 1"), (point.jobs == 1, "data parallel, M = 1")
        return [name for is_on, name in both if is_on]


def _copies(train: Mapping[str, Any], changes: Mapping[str, str], ranks: int) -> int:
    """Ranks, or groups of ranks, that each have samples of their own."""
    told = dict(train["parallel"])
    for key, value in changes.items():
        section, _, name = key.removeprefix("train.").rpartition(".")
        if section == "parallel":
            told |= assigned(f"{name}={value}", example="mode=sharded")
    try:
        return ParallelSettings.model_validate(told).shares(ranks)
    except ValidationError:  # the settings of the point are refused for it, in words
        return ranks


class _Found(NamedTuple):
    """One repeat."""

    window_s: float
    flops: float | None
    worth: float
    quality: float
    alone: float
    partial: bool = False


def _of_ensemble(score: EnsembleScore) -> _Found:
    return _Found(
        score.window_s,
        score.flops,
        score.penalty,
        score.achieved,
        score.mean_quality,
        score.partial,
    )


def _of_one(contents: Contents, score: TrainingScore) -> _Found:
    """A training by itself, its time taken as that of an ensemble: first step to last."""
    (trained,) = (each for each in contents.trained if each.record.job == score.job)
    window_s, quality = window([trained]), score.quality
    achieved = quality.achieved or 0.0
    worth = penalty(
        achieved=achieved, target=quality.target, exponent=quality.exponent, better=quality.better
    )
    known = score.speed is not None and window_s > 0
    rate = flops(ops=score.speed.ops_training, time_s=window_s) if score.speed and known else None
    return _Found(window_s, rate, worth, achieved, achieved)


def _time_to_quality(scores: Sequence[TrainingScore]) -> float | None:
    """The mean over the repeats of the time of the slowest model; None: one never got there."""
    slowest: dict[int, float] = {}
    for score in scores:
        time_s = score.quality.time_to_quality_s
        if time_s is None:
            return None
        slowest[score.repeat] = max(time_s, slowest.get(score.repeat, 0.0))
    return mean(list(slowest.values()))


def _exchanged(contents: Contents) -> float | None:
    """Bytes of a step of one model; stages of a pipeline tell theirs one by one."""
    told: list[float] = []
    for trained in contents.trained:
        events = contents.history.events("exchange", trained.record.job)
        found = [event.payload(Exchanged) for event in events]
        steps = max((each.steps for each in found), default=0)
        if steps:
            told.append(sum(each.bytes_near + each.bytes_far for each in found) / steps)
    return mean(told) if told else None
