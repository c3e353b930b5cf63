"""``scale.json``: the figures of an experiment, and the run folders that they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

from vflops.metrics import flops, mean, penalty, weak_efficiency
from vflops.record.folder import RunFolder
from vflops.record.schema import Data, Document
from vflops.score.contents import Contents
from vflops.score.ensemble import window
from vflops.score.record import EnsembleScore, Score, TrainingScore

Kind = Literal["weak", "bagging-vs-data", "trade-off"]

_BRIEF_S = 30.0
"""Seconds of a point below which its efficiency is not to be quoted."""


class Pair(NamedTuple):
    """M models of P ranks."""

    models: int
    ranks: int

    @property
    def slots(self) -> int:
        """Sys_scale, equation 5."""
        return self.models * self.ranks

    def __str__(self) -> str:
        return f"{self.models}x{self.ranks}"


class Figures(Data):
    """What one point came to: means over the repeats."""

    repeats: int
    partial: bool
    """Whether a planned model is missing."""
    attempts: int
    """The most that a model took: what was tried again has the break in its time."""
    checks_failed: int
    """Rules that the run does not meet."""
    window_s: float
    """From the first step of the first model to the end of the last one's training."""
    flops: float | None
    """Operations of all models over that window; None: they are not known."""
    flops_least: float | None
    flops_most: float | None
    vflops: float | None
    quality: float
    """Of all models together."""
    quality_alone: float
    """The mean of the models by themselves."""
    efficiency: float | None = None
    """FLOPS a slot over those of the base."""
    efficiency_valid: float | None = None
    """The same of VFLOPS."""


class Point(Data):
    """M models of P ranks, and what became of them."""

    models: int
    ranks: int
    run: str | None
    """The run folder, from the experiment's; None: not begun."""
    figures: Figures | None
    """None: not complete."""

    @property
    def pair(self) -> Pair:
        """M and P."""
        return Pair(self.models, self.ranks)


class Scale(Document):
    """An experiment, as far as it has come."""

    schema_name: ClassVar[str] = "vflops.scale"

    workload: str
    kind: Kind
    profile: str
    on: str
    cores_per_rank: int | None
    """Of every point; None: as the scheduler gives them."""
    same_batch: Literal["model", "rank"]
    """Whose batch is the same at all points."""
    quality_name: str | None
    target: float | None
    points: tuple[Point, ...]

    @property
    def complete(self) -> bool:
        """Whether every point has its figures."""
        return all(point.figures for point in self.points)

    @property
    def base(self) -> Point:
        """What the others are compared with: the first of the points with the fewest slots."""
        return min(self.points, key=lambda point: point.pair.slots)

    def ideal(self, figure: Literal["flops", "vflops"], slots: int) -> float | None:
        """What ``slots`` would do if each did what one of the base does."""
        base = self.base
        own = base.figures
        value = getattr(own, figure) if own and not own.partial else None
        return None if value is None else value * slots / base.pair.slots

    @property
    def brief(self) -> bool:
        """Whether a point took so little time that its speed is mostly noise and start-up."""
        return any(point.figures.window_s < _BRIEF_S for point in self.points if point.figures)

    def with_efficiency(self) -> Scale:
        """Every point compared with the base, but for partial ensembles."""
        base = self.base
        points = tuple(_compared(point, base) for point in self.points)
        return self.model_copy(update={"points": points})


def figures(folder: RunFolder, pair: Pair) -> Figures:
    """The figures of a complete run of M models × P ranks, one model measured as many are."""
    contents, scored = Contents(folder), Score.read(folder.score_file)
    if pair.models > 1:
        found = [_of_ensemble(each) for each in scored.ensembles]
    else:
        found = [_of_one(contents, each) for each in scored.trainings]
    rates = [each.flops for each in found if each.flops is not None]
    valid = [each.flops * each.worth for each in found if each.flops is not None]
    known = len(rates) == len(found)
    return Figures(
        repeats=len(found),
        partial=any(each.partial for each in found),
        attempts=max(each.attempts for each in scored.trainings),
        checks_failed=_failed(folder),
        window_s=round(mean([each.window_s for each in found]), 6),
        flops=mean(rates) if known else None,
        flops_least=min(rates) if known else None,
        flops_most=max(rates) if known else None,
        vflops=mean(valid) if known else None,
        quality=mean([each.quality for each in found]),
        quality_alone=mean([each.alone for each in found]),
    )


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


def _failed(folder: RunFolder) -> int:
    from vflops.check.record import Findings

    return len(Findings.read(folder.findings_file).failures)


def _compared(point: Point, base: Point) -> Point:
    if point.figures is None or base.figures is None:
        return point
    if point.figures.partial or base.figures.partial:
        return point
    own, other = point.figures, base.figures
    update = {
        "efficiency": _efficiency(own.flops, point.pair, other.flops, base.pair),
        "efficiency_valid": _efficiency(own.vflops, point.pair, other.vflops, base.pair),
    }
    return point.model_copy(update={"figures": own.model_copy(update=update)})


def _efficiency(value: float | None, pair: Pair, base: float | None, of: Pair) -> float | None:
    if value is None or not base:
        return None
    return weak_efficiency(base_flops=base, base_ranks=of.slots, flops=value, ranks=pair.slots)


def table(scale: Scale) -> list[Sequence[str]]:
    """The efficiency table, a row a point, the names first."""
    from vflops.score.words import number
    from vflops.units import percent, quantity, seconds

    named = scale.quality_name or "quality"
    found: list[Sequence[str]] = [
        ("M × P", "slots", "FLOPS", "efficiency", "VFLOPS", "efficiency", "time", named, "alone")
    ]
    for point in scale.points:
        size, own = (f"{point.models} × {point.ranks}", str(point.pair.slots)), point.figures
        if own is None:
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
                number(own.quality_alone) + _marks(own),
            )
        )
    return found


def _marks(own: Figures) -> str:
    """What a reader must know before the row is compared with others."""
    again = f", {own.attempts} attempts" if own.attempts > 1 else ""
    return ", partial" * own.partial + again
