"""Settings of a command: what is run, and what cannot be known without its author."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from vflops.config.training import TrainingPrecision, TrainSettings, WorkloadSettings
from vflops.metrics.quality import Better


def _words(command: object) -> object:
    """A command line as its words, as a shell splits it."""
    return shlex.split(command) if isinstance(command, str) else command


class CommandSettings(WorkloadSettings):
    """A training script.

    What it needs and has no default for (command, samples, target, operations) may be absent here,
    so that a profile is whole; a run without it is refused.
    """

    command: Annotated[tuple[str, ...], BeforeValidator(_words)] = ()
    """Program and arguments; ``{python}`` is the Python that runs vflops."""
    samples: int | None = Field(default=None, ge=1, le=10**9)
    """Of the training set: an epoch."""
    validation: int | None = Field(default=None, ge=1, le=10**9)
    """Samples of an evaluation, where the script does not say ``evaluated``."""
    target: float | None = Field(default=None, gt=0)
    quality: str = Field(default="quality", min_length=1)
    """The name of what ``target`` is about: accuracy, perplexity …"""
    better: Better = "higher"
    exponent: int = Field(default=1, ge=1, le=100)
    """n of VFLOPS = FLOPS × (achieved / target)ⁿ."""
    ops_forward: int | None = Field(default=None, ge=1)
    """Operations of the forward pass of one sample, as the user declares them."""
    ops_total: int | None = Field(default=None, ge=1)
    """The same of training: forward, backward, update."""
    ops_source: str = Field(default="the user's settings", min_length=1)
    """Where the declared operations come from."""
    graph: str | None = None
    """A recorded graph (``vflops count MODEL --export graph``), counted by the rules."""
    precision: TrainingPrecision | None = None
    """What the script computes in; None: not known, so there is no MFU."""

    @model_validator(mode="before")
    @classmethod
    def _ceilings_are_of_its_precision(cls, data: Any) -> Any:
        """The ceilings of a run are chosen by ``train.precision``: it follows ``precision``."""
        if isinstance(data, Mapping) and data.get("precision") is not None:
            train = data.get("train", {})
            if isinstance(train, TrainSettings):
                train = train.model_dump()
            return {**data, "train": {**train, "precision": data["precision"]}}
        return data

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> CommandSettings:
        for section in ("parallel", "communication"):
            if getattr(self.train, section) != TrainSettings.model_fields[section].default:
                raise ValueError(
                    f"train.{section} is of models that vflops trains; how a command's ranks work "
                    "together is its script's own: leave it out"
                )
        if (self.ops_forward is None) != (self.ops_total is None):
            raise ValueError("ops_forward and ops_total belong together: give both")
        if self.ops_forward is not None and self.graph is not None:
            raise ValueError("operations come from ops_forward and ops_total or from graph: choose")
        if self.ops_total is not None and self.ops_total < (self.ops_forward or 0):
            raise ValueError(
                f"ops_total {self.ops_total} is training, with ops_forward {self.ops_forward} in it"
            )
        return self


def tiny() -> CommandSettings:
    """One epoch."""
    return CommandSettings(train=TrainSettings(epochs=1, batch=32))


def laptop() -> CommandSettings:
    """A few epochs."""
    return CommandSettings(train=TrainSettings(epochs=5))


def gpu() -> CommandSettings:
    """The same with the batch of an accelerator."""
    return CommandSettings(train=TrainSettings(epochs=5, batch=256))


def reference() -> CommandSettings:
    """Epochs as the papers train; a script is free to know better."""
    return CommandSettings(train=TrainSettings(epochs=90, batch=256))


PROFILES: dict[str, Callable[[], CommandSettings]] = {
    "tiny": tiny,
    "laptop": laptop,
    "gpu": gpu,
    "reference": reference,
}
