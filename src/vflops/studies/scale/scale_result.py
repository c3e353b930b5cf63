"""``scale.json``: the figures of an experiment, and the run folders that they come from."""

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
"""Seconds of a point below which its efficiency is not to be quoted."""


class Size(NamedTuple):
    """M jobs of P ranks: the base models of an ensemble, or the workers of a search."""

    jobs: int
    ranks: int
    variant: str | None = None
    """Of how it is done, where several are compared."""

    @property
    def slots(self) -> int:
        """Sys_scale, equation 5."""
        return self.jobs * self.ranks

    def __str__(self) -> str:
        return f"{self.variant}/" * bool(self.variant) + f"{self.jobs}x{self.ranks}"


class Variant(Data):
    """One of several ways to do the same, by the settings that make it so."""

    name: str
    settings: dict[str, str]
    """As ``--set`` takes them."""


class Figures(Data):
    """What every point has, whatever it ran."""

    partial: bool
    """Whether a planned job is missing."""
    attempts: int
    """The most that a job took: what was tried again has the break in its time."""
    checks_failed: int
    """Rules that the run does not meet."""
    window_s: float
    """From the first step of the first job to the end of the last one's work."""
    efficiency: float | None = None
    """The rate of a slot over that of a slot of the base."""
    efficiency_valid: float | None = None
    """The same of the valid rate."""

    @property
    def rate(self) -> float | None:
        """Operations a second; None: they are not known."""
        raise NotImplementedError

    @property
    def valid(self) -> float | None:
        """Operations a second weighed by what was learned."""
        raise NotImplementedError


class EnsembleFigures(Figures):
    """Base models together: means over the repeats."""

    repeats: int
    flops: float | None
    """Operations of all models over the window; None: they are not known."""
    flops_least: float | None
    flops_most: float | None
    vflops: float | None
    quality: float
    """Of all models together."""
    quality_alone: float
    """The mean of the models by themselves."""
    penalty: float | None = None
    """(quality / target)ⁿ: what FLOPS are multiplied with."""
    time_to_quality_s: float | None = None
    """Until the last of the models, by itself, was at the target; None: one never was."""
    exchanged_bytes: float | None = None
    """That the ranks of a model sent each other a step, for its gradients; None: not counted."""
    emulated: str | None = None
    """What to know where the device computes wider than the precision and converts."""
    speedup: float | None = None
    """FLOPS over those of the first variant at the same size."""
    quality_change: float | None = None
    """Quality less that of the first variant at the same size."""

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
    """The largest of all moments that count."""
    regulated: float | None
    """The largest −ln(error) · operations a second of those."""
    error: float | None
    """Of the best model."""
    architectures: int
    """Those that were tried, each once."""
    idle_share: float | None
    """Of the workers' time, between two candidates."""
    converged: bool | None
    """Whether operations a second stood still in the last fifth of the time; None: not known."""
    broken: tuple[str, ...]
    """Why it is no result by AIPerf's rules."""
    deviations: tuple[str, ...]
    """Where it is another search than AIPerf's table IV fixes."""
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


Found = TypeVar("Found", bound=Figures)


class Point(Data):
    """M jobs of P ranks, and what became of them."""

    jobs: int
    """Base models, or workers."""
    ranks: int
    """Of each."""
    variant: str | None = None
    refused: str | None = None
    """Why it cannot be had here; None: it can."""
    run: str | None
    """The run folder, from the experiment's; None: not begun."""
    figures: EnsembleFigures | SearchFigures | None
    """None: not complete."""

    @property
    def size(self) -> Size:
        """M, P and the variant."""
        return Size(self.jobs, self.ranks, self.variant)


class Scale(Document):
    """An experiment, as far as it has come."""

    schema_name: ClassVar[str] = "vflops.scale"

    workload: str
    kind: Kind
    profile: str
    on: str
    cores_per_rank: int | None
    """Of every point; None: as the scheduler gives them."""
    same_batch: SameBatch | None
    """Whose batch is the same at all points; None: the ranks are, so every batch is."""
    quality_name: str | None
    target: float | None
    """Of the quality; of a search the largest error of a valid result."""
    variants: tuple[Variant, ...] = ()
    """That are compared, the first with all others; empty: only sizes are."""
    sharing: dict[str, str] = Field(default_factory=dict)
    """Settings of how ranks share a model, at the points that have more than one."""
    points: tuple[Point, ...]

    @property
    def complete(self) -> bool:
        """Whether every point that can be had has its figures."""
        return all(point.figures or point.refused for point in self.points)

    @property
    def base(self) -> Point:
        """What the others are compared with: the first of the points with the fewest slots."""
        return min(self.points, key=lambda point: point.size.slots)

    @property
    def brief(self) -> bool:
        """Whether a point took so little time that its speed is mostly noise and start-up."""
        return any(point.figures.window_s < _BRIEF_S for point in self.points if point.figures)

    def found(self, kind: type[Found]) -> Iterator[tuple[Point, Found]]:
        """The points that are complete, each with its figures."""
        for point in self.points:
            if isinstance(point.figures, kind):
                yield point, point.figures

    def ideal(self, figure: Literal["rate", "valid"], slots: int) -> float | None:
        """What ``slots`` would do if each did what one of the base does."""
        base = self.base
        own = base.figures
        value: float | None = getattr(own, figure) if own and not own.partial else None
        return None if value is None else value * slots / base.size.slots

    def with_efficiency(self) -> Scale:
        """Every point beside the base, or beside the first variant; not what misses a job."""
        if self.variants:
            first = self.variants[0].name
            others = {p.size: p.figures for p in self.points if p.variant == first}
            points = [_beside(p, others.get(p.size._replace(variant=first))) for p in self.points]
        else:
            base = self.base
            points = [_compared(point, base) for point in self.points]
        return self.model_copy(update={"points": tuple(points)})


def _compared(point: Point, base: Point) -> Point:
    own, other = point.figures, base.figures
    if own is None or other is None or own.partial or other.partial:
        return point
    update = {
        "efficiency": _efficiency(own.rate, point.size, other.rate, base.size),
        "efficiency_valid": _efficiency(own.valid, point.size, other.valid, base.size),
    }
    return point.model_copy(update={"figures": own.model_copy(update=update)})


def _beside(point: Point, other: Figures | None) -> Point:
    own = point.figures
    if not isinstance(own, EnsembleFigures) or not isinstance(other, EnsembleFigures):
        return point
    if own.partial or other.partial:
        return point
    update = {
        "speedup": own.flops / other.flops if own.flops and other.flops else None,
        "quality_change": own.quality - other.quality,
    }
    return point.model_copy(update={"figures": own.model_copy(update=update)})


def _efficiency(value: float | None, size: Size, base: float | None, of: Size) -> float | None:
    if value is None or not base:
        return None
    return weak_efficiency(base_flops=base, base_ranks=of.slots, flops=value, ranks=size.slots)
