"""Settings of a command: what to run, and what only the user knows about it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from vflops.config.training import TrainingPrecision, TrainSettings, WorkloadSettings
from vflops.metrics.quality import Better
from vflops.record.formats.job import QualityBounds
from vflops.workloads.command.combined_metric import Combination, CombinedMetric


def _split_words(command: object) -> object:
    """Split a command line into words like a shell."""
    return shlex.split(command) if isinstance(command, str) else command


class CommandSettings(WorkloadSettings):
    """A training script.

    Required settings without a default (command, samples, target, operations) may be missing here,
    so that profiles are valid; a run without them is refused.
    """

    command: Annotated[tuple[str, ...], BeforeValidator(_split_words)] = ()
    """Program and arguments; ``{python}`` is the Python that runs vflops."""
    samples: int | None = Field(default=None, ge=1, le=10**9)
    """The number of samples in the training set, which is the length of an epoch."""
    validation: int | None = Field(default=None, ge=1, le=10**9)
    """The number of samples in an evaluation, unless the script reports ``evaluated``."""
    target: float | None = Field(default=None, gt=0)
    quality: str = Field(default="quality", min_length=1)
    """The name of the quality: accuracy, perplexity …"""
    better: Better = "higher"
    bounds: QualityBounds | None = Field(default=None, examples=["[0, 100]"])
    """The lowest and the highest possible quality, infinite for an open end. None for 0 and 1 if
    its name says that it is a share, such as accuracy, F1 or error; required for other names."""
    combine: Combination = "mean"
    """How the predictions of an ensemble are combined: the mean of probabilities or numbers, a vote
    of the models for a class, or a fusion of boxes."""
    combine_quality: CombinedMetric | None = None
    """What is computed from combined predictions. None if the name of the quality says it, such as
    accuracy; required for ensembles with another name."""
    exponent: int = Field(default=1, ge=1, le=100)
    """The n in VFLOPS = FLOPS × (achieved / target)ⁿ."""
    ops_forward: int | None = Field(default=None, ge=1)
    """Operations of the forward pass for one sample, as declared by the user."""
    ops_total: int | None = Field(default=None, ge=1)
    """Operations of training on one sample: forward, backward and update."""
    ops_source: str = Field(default="the user's settings", min_length=1)
    """Where the declared operations come from."""
    graph: str | None = None
    """A recorded graph (``vflops count MODEL --export graph``) to count the operations in."""
    precision: TrainingPrecision | None = None
    """The precision of the script; None if it is unknown, in which case there is no MFU."""

    @model_validator(mode="before")
    @classmethod
    def _copy_precision(cls, data: Any) -> Any:
        """Copy ``precision`` to ``train.precision``, which selects the ceilings of a run."""
        if isinstance(data, Mapping) and data.get("precision") is not None:
            train = data.get("train", {})
            if isinstance(train, TrainSettings):
                train = train.model_dump()
            return {**data, "train": {**train, "precision": data["precision"]}}
        return data

    @model_validator(mode="after")
    def _check_consistency(self) -> CommandSettings:
        for section in ("parallel", "communication"):
            if getattr(self.train, section) != TrainSettings.model_fields[section].default:
                raise ValueError(
                    f"train.{section} is for models that vflops trains; a command arranges its "
                    "ranks itself: leave it out"
                )
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ValueError(
                f"bounds {list(self.bounds)} are not a lowest and a highest quality, such as [0, 1]"
            )
        if (self.ops_forward is None) != (self.ops_total is None):
            raise ValueError("ops_forward and ops_total belong together: give both")
        if self.ops_forward is not None and self.graph is not None:
            raise ValueError("give either ops_forward and ops_total, or graph")
        if self.ops_total is not None and self.ops_total < (self.ops_forward or 0):
            raise ValueError(
                f"ops_total {self.ops_total} is less than ops_forward {self.ops_forward}, which it "
                "includes"
            )
        return self


def tiny() -> CommandSettings:
    """One epoch."""
    return CommandSettings(train=TrainSettings(epochs=1, batch=32))


def laptop() -> CommandSettings:
    """A few epochs."""
    return CommandSettings(train=TrainSettings(epochs=5))


def gpu() -> CommandSettings:
    """A few epochs with a batch size for an accelerator."""
    return CommandSettings(train=TrainSettings(epochs=5, batch=256))


def reference() -> CommandSettings:
    """The number of epochs used in the papers; a script may choose another."""
    return CommandSettings(train=TrainSettings(epochs=90, batch=256))


PROFILES: dict[str, Callable[[], CommandSettings]] = {
    "tiny": tiny,
    "laptop": laptop,
    "gpu": gpu,
    "reference": reference,
}
