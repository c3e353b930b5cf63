"""The axis of an experiment: what grows from point to point, and the figures of a point."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from vflops.config.settings import Settings
from vflops.extensions import import_object
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.studies.scale.kinds import KINDS
from vflops.studies.scale.point_figures import EnsembleFigures, Figures, SearchFigures
from vflops.studies.scale.scale_charts import Curve
from vflops.studies.scale.scale_result import (
    GroupFigure,
    Kind,
    Point,
    Scale,
    Size,
    Variant,
)
from vflops.units import count


@dataclass(frozen=True)
class Axis(ABC):
    """What grows from point to point, and the figures of a point."""

    kind: Kind
    variants: tuple[Variant, ...] = ()
    """The variants that are compared at every size; if empty, only sizes are compared."""
    sharing: Mapping[str, str] = field(default_factory=dict)
    """Settings of how ranks share a model, for points with several ranks."""
    error: float | None = None
    """The target error of searches; None for the largest valid error of the settings."""
    job: ClassVar[str] = "model"
    """What grows: ``model`` or ``worker``."""
    heading: ClassVar[str] = "Figures"
    """The heading of the table."""
    named_columns: ClassVar[int] = 0
    """The number of leading table columns that are text."""
    row_per_point: ClassVar[bool] = True
    """Whether the rows of the table are the points, in order."""

    @property
    def title(self) -> str:
        """The name of the experiment."""
        return KINDS[self.kind].title

    @property
    def paper_figure(self) -> str:
        """The figures of the papers that the experiment draws."""
        return KINDS[self.kind].figure

    def words(self, size: Size) -> str:
        """Return a size as text, such as ``2 models × 1 rank``."""
        return f"{count(size.jobs, self.job)} × {count(size.ranks, 'rank')}"

    def settings_for(self, size: Size) -> dict[str, str]:
        """Return the settings that only points of this size have."""
        return dict(self.sharing) if size.ranks > 1 else {}

    def common_settings(
        self, settings: Settings, workload: str, sizes: Sequence[Size]
    ) -> dict[str, Any]:
        """Return the settings that must be equal at all points but would not be by default."""
        return {}

    def base_settings(self, settings: Settings) -> dict[str, Any]:
        """Return the settings that only the first point has."""
        return {}

    @abstractmethod
    def changes(self, section: dict[str, Any], size: Size) -> dict[str, Any]:
        """Return the settings that a point of this size changes in the workload's ``section``."""

    def follows(self, size: Size) -> Size | None:
        """Return the point that must be complete before the settings of this one are known."""
        return None

    def final_settings(
        self, settings: Settings, size: Size, previous: RunFolder | None
    ) -> Settings:
        """Return the settings of a point; ``previous`` is the run of the point that it follows."""
        return settings

    def groups(self, points: Sequence[Point]) -> tuple[GroupFigure, ...]:
        """Return statistics of groups of points, if points are runs of the same kind."""
        return ()

    @abstractmethod
    def check_size(self, settings: Settings, workload: str, size: Size) -> None:
        """Raise UsageError if a point cannot be run with these settings."""

    def unsupported_reason(self, settings: Callable[[], Settings], workload: str) -> str | None:
        """Return why a point has to be left out; None if it can be run.

        ``settings`` loads the settings of the point.
        """
        return None

    @abstractmethod
    def goal(self, record: JobRecord) -> tuple[str, float]:
        """Return the name of the quality measure, and its target."""

    @abstractmethod
    def figures(self, folder: RunFolder, size: Size) -> EnsembleFigures | SearchFigures:
        """Return the figures of a complete run of this size."""

    @abstractmethod
    def table(self, scale: Scale) -> list[Sequence[str]]:
        """Return the column names of the table, and one row per point."""

    @abstractmethod
    def curves(self, scale: Scale) -> list[Curve]:
        """Return the charts of the page; there are none before a point is complete."""

    @abstractmethod
    def usage_table(self, scale: Scale) -> list[Sequence[str]]:
        """Return how points used their nodes, with column names; empty if it is not known."""

    @abstractmethod
    def note(self, scale: Scale) -> str:
        """Return an explanation of the columns of the table."""

    def summary_table(self, scale: Scale) -> list[Sequence[str]]:
        """Return statistics of groups of points, with column names; empty if there are none."""
        return []

    def next_step(self, scale: Scale, folder: Path) -> str | None:
        """Return what to do with the result in ``folder``, if that is more than reading it."""
        return None

    def remarks(self, scale: Scale) -> list[tuple[str, str]]:
        """Return remarks on single points, each with the name of the point."""
        settings = ", ".join(f"{key}={value}" for key, value in scale.sharing.items())
        return [("P > 1", settings)] if settings else []

    def deviations(self, scale: Scale) -> list[str]:
        """Return deviations of the points from the paper."""
        return []


def axis_of(
    kind: Kind,
    variants: tuple[Variant, ...] = (),
    sharing: Mapping[str, str] = MappingProxyType({}),
    error: float | None = None,
) -> Axis:
    """Return the axis of an experiment of this kind."""
    axis: Axis = import_object(KINDS[kind].axis)(kind, variants, dict(sharing), error)
    return axis


def checks_failed(folder: RunFolder) -> int:
    """Return the number of rules that a concluded run breaks."""
    from vflops.results.check.findings import Findings

    return len(Findings.read(folder.findings_file).failures)


def marks(figures: Figures) -> str:
    """Return remarks that limit how a row compares with others, to append to its last cell."""
    attempts = f", {figures.attempts} attempts" if figures.attempts > 1 else ""
    return ", partial" * figures.partial + attempts
