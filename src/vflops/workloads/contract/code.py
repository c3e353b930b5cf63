"""The interface of a workload that a run uses before its jobs start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from vflops.config.training import WorkloadSettings
from vflops.record.formats.job import DataFacts, DeclaredWork

if TYPE_CHECKING:
    from vflops.record.formats.graph import Graph
    from vflops.workloads.contract.spec import Quality, WorkloadSpec

Progress = Callable[[str, int, int], None]
"""Called with a description of the step, the amount done so far and the total amount."""


class WorkloadCode(ABC):
    """The part of a workload that does not depend on how it is trained.

    All methods are class methods: the controller of a run calls them without opening the data.
    """

    graph_declared: ClassVar[bool] = False
    """Whether ``work`` returns a graph that the user supplied, not one captured from the model."""

    @classmethod
    @abstractmethod
    def prepare_data(cls, settings: WorkloadSettings, progress: Progress) -> DataFacts:
        """Generate or check the data once, before any rank starts.

        Raise ``VflopsError`` if the data cannot be used.
        """

    @classmethod
    def check_settings(cls, settings: WorkloadSettings) -> None:
        """Raise ``UsageError`` if settings are missing or wrong; called before a folder is made."""
        return None

    @classmethod
    def check_data(cls, settings: WorkloadSettings, data: DataFacts) -> None:
        """Raise ``UsageError`` if the settings do not fit such data.

        Called before the data exists, with the facts that are expected.
        """
        return None

    @classmethod
    def check_ensemble(cls, settings: WorkloadSettings) -> None:
        """Raise ``UsageError`` if the predictions of several models could not be combined.

        Called before a folder is made, if there are several models.
        """
        return None

    @classmethod
    def verify_data(cls, data: DataFacts) -> None:
        """Raise ``VflopsError`` if the data has changed since the job first started."""
        return None

    @classmethod
    @abstractmethod
    def work(cls, settings: WorkloadSettings, data: DataFacts, name: str) -> Graph | DeclaredWork:
        """Return the operations of one training step.

        Either a graph named ``name``, or the number of operations that the user declares.
        """

    @classmethod
    @abstractmethod
    def target(cls, settings: WorkloadSettings) -> float:
        """Return the quality that a model has to reach with these settings."""

    @classmethod
    def workers(cls, settings: WorkloadSettings) -> int | None:
        """Return the number of workers of a search, or None if every job trains one model."""
        return None

    @classmethod
    def lay_out(cls, run: Path, settings: WorkloadSettings) -> None:
        """Write files that the jobs of a run share into its folder, before any of them starts."""
        return None

    @classmethod
    def judged_by(cls, settings: WorkloadSettings, spec: WorkloadSpec) -> Quality:
        """Return the quality measure for these settings; by default the one of the spec."""
        return spec.quality

    @classmethod
    def combined_by(cls, settings: WorkloadSettings, spec: WorkloadSpec) -> str:
        """Return ``package.module:function`` that combines predictions; by default the spec's."""
        return spec.combine
