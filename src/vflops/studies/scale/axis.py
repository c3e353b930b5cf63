"""What an experiment is about: what grows from point to point, and what is read of a point."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from vflops.config.settings import Settings
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.results.score.figure_text import count
from vflops.studies.scale.scale_charts import Curve
from vflops.studies.scale.scale_result import (
    EnsembleFigures,
    Figures,
    Kind,
    SameBatch,
    Scale,
    SearchFigures,
    Size,
    Variant,
)


class Axis(ABC):
    """All that differs between experiments; one that is added is a class of these methods."""

    kind: Kind
    job: str
    """What there is more of: ``model`` or ``worker``."""
    same_batch: SameBatch | None = None
    variants: tuple[Variant, ...] = ()
    """That are compared at every size; empty: only sizes are."""
    sharing: Mapping[str, str] = MappingProxyType({})
    """Settings of how ranks share a model: of the points that have more than one."""
    heading: str = "Efficiency"
    """Of the table."""
    named_columns: int = 0
    """Columns of the table, from the first on, that are words."""

    def words(self, size: Size) -> str:
        """``2 models × 1 rank``."""
        return f"{count(size.jobs, self.job)} × {count(size.ranks, 'rank')}"

    def own(self, size: Size) -> dict[str, str]:
        """What is set at points like this one alone."""
        return dict(self.sharing) if size.ranks > 1 else {}

    def shared(self, settings: Settings, workload: str, sizes: Sequence[Size]) -> dict[str, Any]:
        """Settings that all points must have alike, and would not by themselves."""
        return {}

    @abstractmethod
    def changes(self, section: dict[str, Any], size: Size) -> dict[str, Any]:
        """The settings that make the workload's ``section`` one of this size."""

    @abstractmethod
    def refuse(self, settings: Settings, workload: str, size: Size) -> None:
        """Refuse a point that its own settings could not be run with."""

    def refusal(self, settings: Callable[[], Settings], workload: str) -> str | None:
        """Why a point cannot be had here while others can; ``settings`` makes those of it."""
        return None

    @abstractmethod
    def goal(self, record: JobRecord) -> tuple[str, float]:
        """What judges the points, and the value that is wanted."""

    @abstractmethod
    def figures(self, folder: RunFolder, size: Size) -> EnsembleFigures | SearchFigures:
        """What a complete run of this size came to."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The experiment's name."""

    @abstractmethod
    def table(self, scale: Scale) -> list[Sequence[str]]:
        """The efficiency table, a row a point, the names first."""

    @abstractmethod
    def curves(self, scale: Scale) -> list[Curve]:
        """The charts of the page; none before a point is complete."""

    @abstractmethod
    def note(self, scale: Scale) -> str:
        """What the columns of the table are."""

    def remarks(self, scale: Scale) -> list[tuple[str, str]]:
        """What must be known of single points, each after their name."""
        told = ", ".join(f"{key}={value}" for key, value in scale.sharing.items())
        return [("P > 1", told)] if told else []

    def deviations(self, scale: Scale) -> list[str]:
        """Where the points are otherwise than the paper fixes."""
        return []


def axis_of(
    kind: Kind,
    same_batch: SameBatch | None = "rank",
    variants: tuple[Variant, ...] = (),
    sharing: Mapping[str, str] = MappingProxyType({}),
) -> Axis:
    """The axis of an experiment."""
    if variants:
        from vflops.studies.scale.variants import Variants

        return Variants(kind, same_batch or "rank", sharing=sharing, variants=variants)
    if kind == "workers":
        from vflops.studies.scale.worker_scaling import Workers

        return Workers(sharing=sharing)
    from vflops.studies.scale.ensembles import Ensembles

    return Ensembles(kind, same_batch or "rank", sharing=sharing)


def checks_failed(folder: RunFolder) -> int:
    """How many rules a concluded run does not meet."""
    from vflops.results.check.findings import Findings

    return len(Findings.read(folder.findings_file).failures)


def marks(own: Figures) -> str:
    """What a reader must know before the row is compared with others."""
    again = f", {own.attempts} attempts" if own.attempts > 1 else ""
    return ", partial" * own.partial + again
