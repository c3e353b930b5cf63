"""What describes a workload: plain data, known without torch and without loading its code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vflops.config.training import WorkloadSettings
from vflops.errors import UsageError
from vflops.extensions import imported
from vflops.metrics.quality import Better

ENGINE = "vflops.train.engine:run"
"""The runner of workloads that are torch modules trained by the loop of this package."""


@dataclass(frozen=True)
class Quality:
    """What a trained model is judged by, and how hard a miss of the target counts."""

    name: str
    better: Better
    exponent: int
    """n of VFLOPS = FLOPS × (achieved / target)ⁿ."""


@dataclass(frozen=True)
class WorkloadSpec:
    """A workload's description; what is trained is in its code."""

    name: str
    title: str
    quality: Quality
    combine: str
    """``package.module:function`` that makes one prediction of several models' (numpy)."""
    settings: type[WorkloadSettings]
    profiles: Mapping[str, Callable[[], WorkloadSettings]]
    """Its settings at each size: tiny, laptop, gpu, reference."""
    code: str
    """``package.module:class`` of the workload itself, a subclass of ``Workload``."""
    runner: str = ENGINE
    """``package.module:function`` that a rank calls to run a job of it."""
    exhibit: str | None = None
    """``package.module:function`` that makes figures of what a job left to be shown (no torch)."""
    expected: str | None = None
    """``package.module:function`` from its settings to ``ExpectedData`` (no torch)."""
    observer: str | None = None
    """``package.module:function`` from a ``JobRecord`` to a ``JobObserver`` that follows the job's
    events for the live table (no torch); None: epochs and qualities are enough."""
    is_search: bool = False
    """Whether its jobs are workers of one search, not trainings by themselves."""
    can_be_bagged: bool = True
    """Whether its models leave predictions, which an ensemble combines."""
    in_suite: bool = True
    """Whether a run of everything includes it."""
    origin: str = "vflops"

    def profile(self, name: str) -> WorkloadSettings:
        """Its settings at the size ``name``."""
        if name not in self.profiles:
            raise UsageError(
                f"workload {self.name} has no profile {name!r}",
                hint=f"one of: {', '.join(self.profiles)}",
            )
        return self.profiles[name]()

    def load_code(self) -> Any:
        """The workload's class; its module may import torch."""
        return imported(self.code)
