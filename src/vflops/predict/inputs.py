"""What a prediction rests on: figures that are measured or typed, and how the training is run.

A figure has no default: None is *not known*, and a prediction that needs it says so. A choice (how
gradients are exchanged, how a model is split) has one, which is shown with the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from vflops.config.section import Section
from vflops.config.toml import assigned, read_toml
from vflops.errors import UsageError, shown, unknown_name
from vflops.predict.exchange import SHARES, ExchangeMode
from vflops.predict.steps import ParallelMode, Splitting

MOST = 100_000
"""Accelerators."""

_Positive = Annotated[float, Field(gt=0)] | None
_Some = Annotated[int, Field(ge=1)] | None


class StepInputs(Section):
    """A training step of one accelerator by itself."""

    time_s: _Positive = None
    batch: _Some = None
    """Samples."""
    ops_per_sample: _Positive = None


class ModelInputs(Section):
    """What is exchanged."""

    gradient_bytes: _Positive = None
    """In fp32: 4 for each parameter."""
    activation_bytes: _Positive = None
    """That pass a cut between two layers, for the batch of one accelerator."""
    layers: _Some = None
    """That can be cut between, or split."""


class NodeInputs(Section):
    """A node: its accelerators, and the links between them."""

    accelerators: Annotated[int, Field(ge=1, le=MOST)] | None = None
    bandwidth: _Positive = None
    """B/s that one accelerator sends to another."""
    latency_s: Annotated[float, Field(ge=0)] | None = None
    power_w: _Positive = None
    """Of one accelerator, with its share of what else is measured."""


class LinkInputs(Section):
    """Between nodes."""

    bandwidth: _Positive = None
    """B/s of a node."""
    latency_s: Annotated[float, Field(ge=0)] | None = None


class StorageInputs(Section):
    """The file system that all jobs share; without it, reading is taken to cost nothing."""

    bandwidth: _Positive = None
    bytes_per_sample: _Positive = None

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.bandwidth is None) != (self.bytes_per_sample is None):
            raise ValueError("bandwidth and bytes_per_sample belong together: set both, or none")
        return self


class TrainingInputs(Section):
    """To the target, and what the model is worth there."""

    samples: _Some = None
    """Of an epoch."""
    epochs: _Positive = None
    quality_factor: Annotated[float, Field(ge=0)] | None = None
    """(quality / target)ⁿ, of the whole ensemble."""


class ExchangeInputs(Section):
    """How gradients are exchanged."""

    mode: ExchangeMode = "ring"
    precision: Literal["fp32", "fp16", "bf16", "int8", "powersgd"] = "fp32"
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Bytes on the wire for a byte of fp32; None: as the precision has them."""
    overlap: float = Field(default=0.0, ge=0, le=1)
    """The share of a step under which gradients can be exchanged."""
    buckets: int = Field(default=1, ge=1, le=10_000)

    @model_validator(mode="after")
    def _hides(self) -> Self:
        if self.overlap and self.buckets == 1:
            raise ValueError(
                f"overlap = {self.overlap:g} with one bucket hides nothing: it is full when the"
                " backward pass is over; set exchange.buckets"
            )
        return self


class ParallelInputs(Section):
    """How the ranks of a model share it."""

    mode: ParallelMode = "data"
    split: Splitting = "pipeline"
    """Of a mixed mode: how each replica is split."""
    stages: _Some = None
    """Of a mixed mode: ranks of a replica."""
    micro_batches: _Some = None
    chunks: int = Field(default=1, ge=1, le=1000)
    """Of a stage: 1 for GPipe and 1F1B, more for an interleaved pipeline."""


class Inputs(Section):
    """All of it."""

    step: StepInputs = StepInputs()
    model: ModelInputs = ModelInputs()
    node: NodeInputs = NodeInputs()
    link: LinkInputs = LinkInputs()
    storage: StorageInputs = StorageInputs()
    training: TrainingInputs = TrainingInputs()
    exchange: ExchangeInputs = ExchangeInputs()
    parallel: ParallelInputs = ParallelInputs()

    @property
    def share(self) -> float:
        """Bytes on the wire for a byte of gradients."""
        found = self.exchange.share or SHARES[self.exchange.precision]
        if found is None:
            raise UsageError(
                f"exchange.precision = {self.exchange.precision}: what it saves depends on the"
                " shapes of the layers and on its rank",
                cure="type it, e.g. a sixtieth of the bytes: --set exchange.share=0.0167",
            )
        return found

    def changed(self, **sections: Mapping[str, Any]) -> Inputs:
        """The same with some values of some sections changed, and checked again."""
        data = self.model_dump(exclude_unset=True)
        return validated(_merged(data, sections))

    def figures(self) -> dict[str, Any]:
        """Every value by its name, ``step.time_s``."""
        return {
            f"{section}.{key}": value
            for section, values in self.model_dump().items()
            for key, value in values.items()
        }


def load(base: Mapping[str, Any], file: Path | None, assignments: Sequence[str]) -> Inputs:
    """``base`` changed by a TOML file and then by ``section.key=value`` assignments."""
    return validated(_merged(base, typed(file, assignments)))


def typed(file: Path | None, assignments: Sequence[str]) -> dict[str, Any]:
    """What a user says: the file, then the assignments."""
    data: dict[str, Any] = read_toml(file) if file is not None else {}
    for assignment in assignments:
        data = _merged(data, assigned(assignment, example="link.bandwidth=1.25e9"))
    return data


def validated(data: Mapping[str, Any]) -> Inputs:
    """The inputs, or an error that names the setting, its value and what was expected."""
    try:
        return Inputs.model_validate(data)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = [str(part) for part in fault["loc"] if part in _names(fault["loc"])]
        name = ".".join(place)
        if fault["type"] == "extra_forbidden":
            raise unknown_name("setting", name, _every_name(place)) from error
        if isinstance(fault["input"], Mapping):
            message = f"settings {name}: {fault['msg'].removeprefix('Value error, ')}"
            raise UsageError(message) from error
        raise UsageError(
            f"setting {name} = {shown(fault['input'])}: {fault['msg'].lower()}",
            cure="docs/prediction.md says what each setting is, and its unit",
        ) from error


def _names(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The parts of a fault's place that a user wrote: pydantic adds which of a union it tried."""
    return loc[:2]


def _every_name(place: Sequence[str]) -> list[str]:
    if len(place) == 1:
        return list(Inputs.model_fields)
    section = Inputs.model_fields[place[0]].annotation
    assert isinstance(section, type) and issubclass(section, BaseModel)
    return [f"{place[0]}.{key}" for key in section.model_fields]


def _merged(data: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(data)
    for key, value in change.items():
        own = found.get(key)
        both = isinstance(own, Mapping) and isinstance(value, Mapping)
        found[key] = _merged(own, value) if both else value  # type: ignore[arg-type]
    return found
