"""``scale.json``: the figures of an experiment, and their run folders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal, NamedTuple, TypeVar

from pydantic import Field

from vflops.metrics import weak_efficiency
from vflops.record.files.document import Data, Document
from vflops.results.score.score_file import SearchMoment

Kind = Literal["weak", "bagging-vs-data", "trade-off", "workers", "optimisations", "precisions"]
SameBatch = Literal["model", "rank"]

_BRIEF_S = 30.0
"""Below this duration of a point, its efficiency should not be quoted."""


class Size(NamedTuple):
    """M jobs of P ranks: the base models of an ensemble, or the workers of a search."""

    jobs: int
    ranks: int
    variant: str | None = None
    """The name of the variant, if several are compared."""

    @property
    def slots(self) -> int:
        """Sys_scale, equation 5."""
        return self.jobs * self.ranks

    def __str__(self) -> str:
        return f"{self.variant}/" * bool(self.variant) + f"{self.jobs}x{self.ranks}"


class Variant(Data):
    """One of several variants of a training, and its settings."""

    name: str
    settings: dict[str, str]
    """As for ``--set``."""


class Figures(Data):
    """The figures that every point has."""

    partial: bool
    """Whether a planned job is missing."""
    attempts: int
    """The most attempts of a job; interruptions are included in its time."""
    checks_failed: int
    """The number of rules that the run breaks."""
    window_s: float
    """From the first step of the first job to the end of the last one's work."""
    efficiency: float | None = None
    """The rate per slot relative to the base."""
    efficiency_valid: float | None = None
    """The valid rate per slot relative to the base."""

    @property
    def rate(self) -> float | None:
        """Operations per second; None if not known."""
        raise NotImplementedError

    @property
    def valid(self) -> float | None:
        """Operations per second times the quality factor."""
        raise NotImplementedError


class EnsembleFigures(Figures):
    """An ensemble: means over the repeats."""

    repeats: int
    flops: float | None
    """Operations of all models over the window; None if not known."""
    flops_least: float | None
    flops_most: float | None
    vflops: float | None
    quality: float
    """The quality of the ensemble."""
    quality_alone: float
    """The mean quality of single models."""
    penalty: float | None = None
    """The quality factor, (quality / target)ⁿ."""
    time_to_quality_s: float | None = None
    """Until the last single model reached the target; None if one never did."""
    exchanged_bytes: float | None = None
    """Gradient bytes that the ranks of a model sent per step; None if not counted."""
    emulated: str | None = None
    """A remark if the device emulates the precision."""
    speedup: float | None = None
    """FLOPS relative to the first variant at the same size."""
    quality_change: float | None = None
    """Quality minus that of the first variant at the same size."""

    @property
    def rate(self) -> float | None:
        """FLOPS."""
        return self.flops

    @property
    def valid(self) -> float | None:
        """VFLOPS."""
        return self.vflops


class SearchFigures(Figures):
    """A whole search."""

    ops_per_s: float | None
    """The largest of all samples that count."""
    regulated: float | None
    """The largest −ln(error) · operations per second of those."""
    error: float | None
    """The error of the best model."""
    architectures: int
    """The number of different architectures that were tried."""
    idle_share: float | None
    """The share of the workers' time between candidates."""
    converged: bool | None
    """Whether operations per second were stable in the last fifth of the time; None: unknown."""
    broken: tuple[str, ...]
    """Why it is not valid by AIPerf's rules."""
    deviations: tuple[str, ...]
    """Deviations from AIPerf's table IV."""
    moments: tuple[SearchMoment, ...]
    """The score over time."""

    @property
    def rate(self) -> float | None:
        """OPS."""
        return self.ops_per_s

    @property
    def valid(self) -> float | None:
        """The regulated score."""
        return self.regulated


AnyFigures = TypeVar("AnyFigures", bound=Figures)


class Point(Data):
    """M jobs of P ranks, and their figures."""

    jobs: int
    """Base models, or workers."""
    ranks: int
    """Ranks per job."""
    variant: str | None = None
    refused: str | None = None
    """Why it cannot be run here; None if it can."""
    run: str | None
    """The run folder, relative to that of the experiment; None: not begun."""
    figures: EnsembleFigures | SearchFigures | None
    """None: not complete."""

    @property
    def size(self) -> Size:
        """The size of the point."""
        return Size(self.jobs, self.ranks, self.variant)


class Scale(Document):
    """An experiment with the figures so far."""

    schema_name: ClassVar[str] = "vflops.scale"

    workload: str
    kind: Kind
    profile: str
    on: str
    cores_per_rank: int | None
    """At every point; None: as the scheduler assigns them."""
    same_batch: SameBatch | None
    """Whose batch is equal at all points; None: the ranks are equal, so every batch is."""
    quality_name: str | None
    target: float | None
    """The target quality; for a search, the largest valid error."""
    variants: tuple[Variant, ...] = ()
    """Variants that are compared with the first; empty: only sizes are compared."""
    sharing: dict[str, str] = Field(default_factory=dict)
    """Settings of how ranks share a model, for points with several ranks."""
    points: tuple[Point, ...]

    @property
    def complete(self) -> bool:
        """Whether every point that can be run has its figures."""
        return all(point.figures or point.refused for point in self.points)

    @property
    def base(self) -> Point:
        """The point that others are compared with: the first of those with the fewest slots."""
        return min(self.points, key=lambda point: point.size.slots)

    @property
    def brief(self) -> bool:
        """Whether a point was so short that its speed is mostly noise and start-up."""
        return any(point.figures.window_s < _BRIEF_S for point in self.points if point.figures)

    def completed(self, kind: type[AnyFigures]) -> Iterator[tuple[Point, AnyFigures]]:
        """Yield the complete points with their figures."""
        for point in self.points:
            if isinstance(point.figures, kind):
                yield point, point.figures

    def ideal(self, figure: Literal["rate", "valid"], slots: int) -> float | None:
        """Return the figure of ``slots`` with ideal scaling from the base."""
        base = self.base
        figures = base.figures
        value: float | None = getattr(figures, figure) if figures and not figures.partial else None
        return None if value is None else value * slots / base.size.slots

    def with_efficiency(self) -> Scale:
        """Return the experiment with complete points compared with the base or first variant."""
        if self.variants:
            first = self.variants[0].name
            others = {p.size: p.figures for p in self.points if p.variant == first}
            points = [_beside(p, others.get(p.size._replace(variant=first))) for p in self.points]
        else:
            base = self.base
            points = [_compared(point, base) for point in self.points]
        return self.model_copy(update={"points": tuple(points)})


def _compared(point: Point, base: Point) -> Point:
    figures, other = point.figures, base.figures
    if figures is None or other is None or figures.partial or other.partial:
        return point
    update = {
        "efficiency": _efficiency(figures.rate, point.size, other.rate, base.size),
        "efficiency_valid": _efficiency(figures.valid, point.size, other.valid, base.size),
    }
    return point.model_copy(update={"figures": figures.model_copy(update=update)})


def _beside(point: Point, other: Figures | None) -> Point:
    figures = point.figures
    if not isinstance(figures, EnsembleFigures) or not isinstance(other, EnsembleFigures):
        return point
    if figures.partial or other.partial:
        return point
    update = {
        "speedup": figures.flops / other.flops if figures.flops and other.flops else None,
        "quality_change": figures.quality - other.quality,
    }
    return point.model_copy(update={"figures": figures.model_copy(update=update)})


def _efficiency(value: float | None, size: Size, base: float | None, of: Size) -> float | None:
    if value is None or not base:
        return None
    return weak_efficiency(base_flops=base, base_ranks=of.slots, flops=value, ranks=size.slots)
