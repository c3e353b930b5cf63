"""``scale.json``: the points of an experiment, with their figures and run folders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal, NamedTuple, TypeVar

from pydantic import Field, PrivateAttr

from vflops.metrics import weak_efficiency
from vflops.record.files.document import Data, Document
from vflops.results.score.figure_text import AS_PUBLISHED, vflops_name
from vflops.studies.scale.point_figures import EnsembleFigures, Figures, SearchFigures

Kind = Literal[
    "weak",
    "bagging-vs-data",
    "trade-off",
    "workers",
    "searches",
    "optimisations",
    "data-parallel",
    "precisions",
    "kernels",
    "frameworks",
]
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


class GroupFigure(Data):
    """One figure of a group of runs that are expected to agree."""

    group: Literal["search", "replay"]
    figure: str
    """The name of the figure, such as ``ops_to_target``."""
    planned: int
    """The number of runs in the group."""
    complete: int
    """The number of runs that are complete."""
    known: int
    """The number of runs that have the figure; the others did not reach the target."""
    mean: float | None
    """The mean of the runs that have the figure."""
    stdev: float | None
    """Their standard deviation; None for fewer than two."""
    variation: float | None
    """Their coefficient of variation, the standard deviation divided by the mean."""


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
    threads_per_rank: int | None = None
    """The CPU threads with which every rank computes; None if points differ, or on accelerators."""
    same_batch: SameBatch | None
    """Whether the batch of a model or of a rank is the same at all points; None if both are."""
    quality_name: str | None
    target: float | None
    """The target quality; for a search, the largest valid error, or that of ``--error``."""
    variants: tuple[Variant, ...] = ()
    """The variants, which are compared with the first; if empty, only sizes are compared."""
    sharing: dict[str, str] = Field(default_factory=dict)
    """Settings of how ranks share a model, for points with several ranks."""
    points: tuple[Point, ...]
    groups: tuple[GroupFigure, ...] = ()
    """Statistics of groups of points, if points are runs of the same kind."""
    rehearsal: bool = False
    """Whether the ranks of all points shared devices, so that speeds are no measurement."""
    _is_as_published: bool = PrivateAttr(default=False)
    """Whether VFLOPS are those of the papers; see ``as_published``."""

    @property
    def complete(self) -> bool:
        """Whether every point that can be run has its figures."""
        return all(point.figures or point.refused for point in self.points)

    @property
    def failed(self) -> list[Point]:
        """The points whose run breaks a rule."""
        return [point for point in self.points if point.figures and point.figures.checks_failed]

    @property
    def base(self) -> Point:
        """The point that others are compared with: the first of those with the fewest slots."""
        return self.base_of(None)

    def base_of(self, variant: str | None) -> Point:
        """Return the base of one variant, or of all; a point that cannot be run is not a base."""
        points = [point for point in self.points if variant in (None, point.variant)]
        usable = [point for point in points if not point.refused]
        return min(usable or points, key=lambda point: point.size.slots)

    @property
    def brief(self) -> bool:
        """Whether a point was so short that its speed is mostly noise and start-up."""
        return any(point.figures.window_s < _BRIEF_S for point in self.points if point.figures)

    @property
    def vflops_name(self) -> str:
        """The name of VFLOPS, which says so if a point has an open task."""
        name = vflops_name("open" if self._has_open_task else "closed")
        return f"{name} {AS_PUBLISHED}" if self._is_as_published else name

    @property
    def open_note(self) -> str:
        """A sentence on VFLOPS of open tasks; empty if all tasks are closed."""
        note = " Open VFLOPS: the task is not that of a profile, so compare them only here."
        return note if self._has_open_task else ""

    @property
    def _has_open_task(self) -> bool:
        return any(figures.task == "open" for _, figures in self.completed(EnsembleFigures))

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """What limits the meaning of all figures: a headline and an explanation each."""
        warnings = []
        if not self.complete:
            warnings.append(
                ("This experiment is incomplete", "run the same command again to continue.")
            )
        if self.brief:
            warnings.append(
                (
                    "Points took only seconds",
                    "their figures are mostly noise and start-up time. Train for minutes before "
                    "you quote a figure.",
                )
            )
        return warnings

    def completed(self, kind: type[AnyFigures]) -> Iterator[tuple[Point, AnyFigures]]:
        """Yield the complete points with their figures."""
        for point in self.points:
            if isinstance(point.figures, kind):
                yield point, point.figures

    @property
    def speed_unit(self) -> str:
        """The unit of a model's speed: tokens/s for windows of tokens, samples/s for others."""
        units = (figures.unit for _, figures in self.completed(EnsembleFigures))
        unit = next(filter(None, units), None)
        return f"{unit.name if unit else 'samples'}/s"

    def ideal(self, figure: Literal["rate", "valid"], slots: int) -> float | None:
        """Return the figure that ``slots`` slots would have with ideal scaling from the base."""
        base = self.base
        figures = base.figures
        value: float | None = getattr(figures, figure) if figures and not figures.partial else None
        return None if value is None else value * slots / base.size.slots

    def as_published(self) -> Scale:
        """Return a copy with VFLOPS by the formula of the papers, to compare with their figures."""
        points = tuple(map(_as_published, self.points))
        copy = self.model_copy(update={"points": points}).with_efficiency()
        copy._is_as_published = True
        return copy

    def with_efficiency(self) -> Scale:
        """Return a copy in which complete points are compared with the base of their variant.

        Points of variants are also compared with the first variant at the same size.
        """
        if self.kind == "searches":  # all points have the same size
            return self
        points = [_with_efficiency(point, self.base_of(point.variant)) for point in self.points]
        if self.variants:
            first = self.variants[0].name
            others = {p.size: p.figures for p in self.points if p.variant == first}
            points = [_with_speedup(p, others.get(p.size._replace(variant=first))) for p in points]
        return self.model_copy(update={"points": tuple(points)})


def _as_published(point: Point) -> Point:
    if not isinstance(point.figures, EnsembleFigures):
        return point
    figures = point.figures.model_copy(update={"vflops": point.figures.vflops_published})
    return point.model_copy(update={"figures": figures})


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
