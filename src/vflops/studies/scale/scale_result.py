"""``scale.json``: the points of an experiment, with their figures and run folders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal, NamedTuple, TypeVar

from pydantic import Field

from vflops.metrics import weak_efficiency
from vflops.record.files.document import Data, Document
from vflops.results.score.figure_text import vflops_name
from vflops.results.score.score_file import SearchMoment
from vflops.results.task.task import TaskKind

Kind = Literal["weak", "bagging-vs-data", "trade-off", "workers", "optimisations", "precisions"]
SameBatch = Literal["model", "rank"]

_BRIEF_S = 30.0
"""Efficiencies of points shorter than this should not be quoted."""


class Size(NamedTuple):
    """M jobs with P ranks each; a job is a base model of an ensemble, or a worker of a search."""

    jobs: int
    ranks: int
    variant: str | None = None
    """The name of the variant, if several are compared."""

    @property
    def slots(self) -> int:
        """The number of slots: Sys_scale, equation 5 of HPC AI500 V3.0."""
        return self.jobs * self.ranks

    def __str__(self) -> str:
        return f"{self.variant}/" * bool(self.variant) + f"{self.jobs}x{self.ranks}"


class Variant(Data):
    """One of several variants of a training run, and its settings."""

    name: str
    settings: dict[str, str]
    """The settings that the variant changes, as ``--set`` takes them."""


class Figures(Data):
    """The figures that every point has."""

    partial: bool
    """Whether a planned job is missing."""
    attempts: int
    """The largest number of attempts at a job; its time includes interruptions."""
    checks_failed: int
    """The number of rules that the run breaks."""
    window_s: float
    """The time from the first step of the first job to the end of the last job's work."""
    efficiency: float | None = None
    """Operations per second and slot, relative to the base."""
    efficiency_valid: float | None = None
    """The same, with operations per second times the quality factor."""

    @property
    def rate(self) -> float | None:
        """Operations per second; None if not known."""
        raise NotImplementedError

    @property
    def valid(self) -> float | None:
        """Operations per second times the quality factor."""
        raise NotImplementedError


class EnsembleFigures(Figures):
    """The figures of an ensemble; they are means over the repeats."""

    repeats: int
    flops: float | None
    """Operations of all models divided by ``window_s``; None if not known."""
    flops_least: float | None
    """The minimum over the repeats."""
    flops_most: float | None
    """The maximum over the repeats."""
    vflops: float | None
    quality: float
    """The quality of the ensemble."""
    quality_alone: float
    """The mean quality of single models."""
    penalty: float | None = None
    """The quality factor, (quality / target)ⁿ."""
    time_to_quality_s: float | None = None
    """The time until the last single model reached the target; None if one never did."""
    exchanged_bytes: float | None = None
    """Gradient bytes that the ranks of a model sent per step; None if not counted."""
    emulated: str | None = None
    """A remark if the device emulates the precision."""
    task: TaskKind | None = None
    """Whether its task is closed; VFLOPS of an open task are not comparable."""
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
    """The figures of a search."""

    ops_per_s: float | None
    """The largest operations per second of all samples over time that count."""
    regulated: float | None
    """The largest −ln(error) · operations per second of these samples."""
    error: float | None
    """The error of the best model."""
    architectures: int
    """The number of different architectures that were tried."""
    idle_share: float | None
    """The share of the workers' time between candidates."""
    converged: bool | None
    """Whether operations per second were stable in the last fifth of the time; None if unknown."""
    broken: tuple[str, ...]
    """Why the search is not valid by AIPerf's rules; empty if it is."""
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
    """A point of an experiment: M jobs with P ranks each, and their figures."""

    jobs: int
    """The number of base models or workers."""
    ranks: int
    """Ranks per job."""
    variant: str | None = None
    refused: str | None = None
    """Why the point cannot be run here; None if it can."""
    run: str | None
    """The run folder, relative to the experiment's folder; None if it has not been started."""
    figures: EnsembleFigures | SearchFigures | None
    """None until the point is complete."""

    @property
    def size(self) -> Size:
        """The size of the point."""
        return Size(self.jobs, self.ranks, self.variant)


class Scale(Document):
    """An experiment, with the figures that are available so far."""

    schema_name: ClassVar[str] = "vflops.scale"

    workload: str
    kind: Kind
    profile: str
    on: str
    cores_per_rank: int | None
    """The cores per rank at every point; None if the scheduler assigns them."""
    same_batch: SameBatch | None
    """Whether the batch of a model or of a rank is the same at all points; None if both are."""
    quality_name: str | None
    target: float | None
    """The target quality; for a search, the largest valid error."""
    variants: tuple[Variant, ...] = ()
    """The variants, which are compared with the first; if empty, only sizes are compared."""
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

    @property
    def vflops_name(self) -> str:
        """The name of VFLOPS, which says so if a point has an open task."""
        return vflops_name("open" if self._has_open_task else "closed")

    @property
    def open_note(self) -> str:
        """A sentence on VFLOPS of open tasks; empty if all tasks are closed."""
        note = " Open VFLOPS: the task is not that of a profile, so compare them only here."
        return note if self._has_open_task else ""

    @property
    def _has_open_task(self) -> bool:
        return any(figures.task == "open" for _, figures in self.completed(EnsembleFigures))

    def completed(self, kind: type[AnyFigures]) -> Iterator[tuple[Point, AnyFigures]]:
        """Yield the complete points with their figures."""
        for point in self.points:
            if isinstance(point.figures, kind):
                yield point, point.figures

    def ideal(self, figure: Literal["rate", "valid"], slots: int) -> float | None:
        """Return the figure that ``slots`` slots would have with ideal scaling from the base."""
        base = self.base
        figures = base.figures
        value: float | None = getattr(figures, figure) if figures and not figures.partial else None
        return None if value is None else value * slots / base.size.slots

    def with_efficiency(self) -> Scale:
        """Return a copy in which complete points are compared with the base or first variant."""
        if self.variants:
            first = self.variants[0].name
            others = {p.size: p.figures for p in self.points if p.variant == first}
            points = [
                _with_speedup(p, others.get(p.size._replace(variant=first))) for p in self.points
            ]
        else:
            base = self.base
            points = [_with_efficiency(point, base) for point in self.points]
        return self.model_copy(update={"points": tuple(points)})


def _with_efficiency(point: Point, base: Point) -> Point:
    figures, other = point.figures, base.figures
    if figures is None or other is None or figures.partial or other.partial:
        return point
    update = {
        "efficiency": _efficiency(figures.rate, point.size, other.rate, base.size),
        "efficiency_valid": _efficiency(figures.valid, point.size, other.valid, base.size),
    }
    return point.model_copy(update={"figures": figures.model_copy(update=update)})


def _with_speedup(point: Point, other: Figures | None) -> Point:
    """Return the point compared with ``other``, the first variant at the same size."""
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


def _efficiency(
    value: float | None, size: Size, base: float | None, base_size: Size
) -> float | None:
    if value is None or not base:
        return None
    return weak_efficiency(
        base_flops=base, base_ranks=base_size.slots, flops=value, ranks=size.slots
    )
