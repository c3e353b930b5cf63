"""The description of a workload: plain data that is available without loading its code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vflops.config.frameworks import NAMES
from vflops.config.training import WorkloadSettings
from vflops.counting.conventions import EXECUTED_CONVENTION
from vflops.errors import UsageError, unknown_name
from vflops.extensions import import_object
from vflops.metrics.quality import Better, Bounds, default_bounds
from vflops.record.formats.job import OfLoss

ENGINE = "vflops.train.engine:run"
"""The runner for models trained with the training loop of this package."""


@dataclass(frozen=True)
class Quality:
    """The measure that a trained model is judged by."""

    name: str
    better: Better
    exponent: int
    """The n in VFLOPS = FLOPS × (achieved / target)ⁿ."""
    bounds: Bounds | None = None
    """The lowest and the highest possible value; a value outside of them is an error. None for 0
    and 1 if the name says that it is a share (``default_bounds``), else for no bounds."""
    of_loss: OfLoss | None = None
    """How it follows from the loss that evaluations measure; then reports show the loss, its target
    and the perplexity as well. None if it does not follow from it."""

    @property
    def limits(self) -> Bounds | None:
        """The bounds, or those that follow from the name."""
        return default_bounds(self.name) if self.bounds is None else self.bounds


@dataclass(frozen=True)
class WorkloadSpec:
    """The description of a workload; paths name the parts that are imported on demand."""

    name: str
    title: str
    quality: Quality
    combine: str
    """``package.module:function`` that combines the predictions of several models (no torch)."""
    settings: type[WorkloadSettings]
    profiles: Mapping[str, Callable[[], WorkloadSettings]]
    """The settings of each profile: tiny, laptop, gpu and reference, and possibly others."""
    code: str
    """``package.module:class``: a subclass of ``Workload``, or of ``WorkloadCode`` if the workload
    has another ``runner``."""
    runner: str = ENGINE
    """``package.module:function`` that every rank of a job calls with its ``JobContext``."""
    exhibit: str | None = None
    """``package.module:function`` that makes ``Figure`` objects from the arrays that
    ``Workload.exhibit`` returns (no torch)."""
    expected: str | None = None
    """``package.module:function`` that returns ``ExpectedData`` for given settings (no torch), or
    None if only preparing the data tells."""
    data_remarks: str | None = None
    """``package.module:function`` that returns remarks about accepted data, a list of sentences,
    for given settings and ``DataFacts`` (no torch). A run shows them before it trains."""
    observer: str | None = None
    """``package.module:function`` that returns for a ``JobRecord`` what the live table calls with
    the job's events, a ``Listener`` (no torch). None if epochs and qualities are enough."""
    is_search: bool = False
    """Whether its jobs are the workers of one search instead of independent training runs."""
    can_be_bagged: bool = True
    """Whether its models leave predictions that an ensemble can combine."""
    classifier: str | None = None
    """``package.module:function`` that returns the ``Classifier`` for given settings and data (no
    torch). None if only PyTorch can train the workload."""
    measures_loss: bool = False
    """Whether evaluations measure the loss, which ``train.stop_by=loss`` needs."""
    rules: str = EXECUTED_CONVENTION
    """The counting convention that its FLOPS are based on; MFU always uses ``executed``."""
    in_suite: bool = True
    """Whether the suite includes it."""
    origin: str = "vflops"
    """The package that it comes from."""

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The frameworks that can train it."""
        return NAMES if self.classifier else NAMES[:1]

    def profile(self, name: str) -> WorkloadSettings:
        """Return the settings of the profile ``name``."""
        if name not in self.profiles:
            raise UsageError(
                f"workload {self.name} has no profile {name!r}",
                hint=f"choose one of: {', '.join(self.profiles)}",
            )
        return self.profiles[name]()

    def load_code(self) -> Any:
        """Import and return the workload's class; its module may import torch."""
        return import_object(self.code)


def check_framework(spec: WorkloadSpec, framework: str) -> None:
    """Raise ``UsageError`` if a framework cannot train a workload."""
    if framework not in NAMES:
        raise unknown_name("framework", framework, NAMES)
    if framework not in spec.frameworks:
        raise UsageError(
            f"{spec.name} is trained with PyTorch only, not with {framework}",
            hint=f"omit --framework, or vflops run image-classification --framework {framework}",
        )
