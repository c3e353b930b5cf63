"""What every workload's code can do before it runs, whoever trains it."""

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
"""Told what is being done, how much of it is done, and how much there is."""


class WorkloadCode(ABC):
    """The part of a workload that the controller of a run asks."""

    graph_declared: ClassVar[bool] = False
    """Whether ``work`` gives a graph that the user brought, not one of the model that trains."""

    @classmethod
    @abstractmethod
    def prepare_data(cls, settings: WorkloadSettings, progress: Progress) -> DataFacts:
        """Make or check the data once, before any rank starts; wrong data is refused here."""

    @classmethod
    def check_data(cls, settings: WorkloadSettings, data: DataFacts) -> None:
        """Refuse settings that do not go with such data; asked before any of it is there."""
        return None

    @classmethod
    def verify_data(cls, data: DataFacts) -> None:
        """Refuse to go on with data that is no longer what the job began with."""
        return None

    @classmethod
    @abstractmethod
    def work(cls, settings: WorkloadSettings, data: DataFacts, name: str) -> Graph | DeclaredWork:
        """The operations of a step: a graph called ``name``, or what the user declares."""

    @classmethod
    @abstractmethod
    def target(cls, settings: WorkloadSettings) -> float:
        """The quality to reach with these settings."""

    @classmethod
    def workers(cls, settings: WorkloadSettings) -> int | None:
        """Jobs that work on one thing side by side; None: each job is a training by itself."""
        return None

    @classmethod
    def lay_out(cls, run: Path, settings: WorkloadSettings) -> None:
        """Put what the jobs of a run share into its folder, before any of them starts."""
        return None

    @classmethod
    def judged_by(cls, settings: WorkloadSettings, spec: WorkloadSpec) -> Quality:
        """What a model trained with these settings is judged by; mostly what the spec says."""
        return spec.quality
