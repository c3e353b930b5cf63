"""The axis of an experiment: what grows from point to point, and the figures of a point."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vflops.config.settings import Settings
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.results.score.figure_text import count
from vflops.studies.scale.point_figures import EnsembleFigures, Figures, SearchFigures
from vflops.studies.scale.scale_charts import Curve
from vflops.studies.scale.scale_result import (
    GroupFigure,
    Kind,
    Point,
    SameBatch,
    Scale,
    Size,
    Variant,
)


class Axis(ABC):
    """Everything that differs between kinds of experiments; a new kind is a subclass."""

    kind: Kind
    job: str
    """What grows: ``model`` or ``worker``."""
    same_batch: SameBatch | None = None
    variants: tuple[Variant, ...] = ()
    """The variants that are compared at every size; if empty, only sizes are compared."""
    sharing: Mapping[str, str] = MappingProxyType({})
    """Settings of how ranks share a model, for points with several ranks."""
    heading: str = "Figures"
    """The heading of the table."""
    named_columns: int = 0
    """The number of leading table columns that are text."""
    row_per_point: bool = True
    """Whether the rows of the table are the points, in order."""

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

    @property
    @abstractmethod
    def title(self) -> str:
        """The name of the experiment."""

    @property
    @abstractmethod
    def paper_figure(self) -> str:
        """The figures of the papers that the experiment draws."""

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
    same_batch: SameBatch | None = "rank",
    variants: tuple[Variant, ...] = (),
    sharing: Mapping[str, str] = MappingProxyType({}),
    error: float | None = None,
) -> Axis:
    """Return the axis of an experiment of this kind."""
    if kind == "searches":
        from vflops.studies.scale.search_variation import SearchVariation

        return SearchVariation(sharing=sharing, error=error)
    if variants:
        from vflops.studies.scale.framework_comparison import FrameworkComparison
        from vflops.studies.scale.precisions import Precisions
        from vflops.studies.scale.variants import Variants

        kinds: dict[str, type[Variants]] = {
            "precisions": Precisions,
            "frameworks": FrameworkComparison,
        }
        found = kinds.get(kind, Variants)
        return found(kind, same_batch or "rank", sharing=sharing, variants=variants)
    if kind == "workers":
        from vflops.studies.scale.worker_scaling import Workers

        return Workers(sharing=sharing)
    if kind == "kernels":
        from vflops.studies.scale.kernel_shares import KernelShares

        return KernelShares(same_batch=same_batch or "rank", sharing=sharing)
    from vflops.studies.scale.ensembles import Ensembles

    return Ensembles(kind, same_batch or "rank", sharing=sharing)


def checks_failed(folder: RunFolder) -> int:
    """Return the number of rules that a concluded run breaks."""
    from vflops.results.check.findings import Findings

    return len(Findings.read(folder.findings_file).failures)


def marks(figures: Figures) -> str:
    """Return remarks that limit how a row compares with others, to append to its last cell."""
    attempts = f", {figures.attempts} attempts" if figures.attempts > 1 else ""
    return ", partial" * figures.partial + attempts
