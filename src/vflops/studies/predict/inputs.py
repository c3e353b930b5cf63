"""What a prediction rests on: figures that are measured or typed, and how the training is run.

A figure has no default: None is *not known*, and a prediction that needs it says so. A choice (how
gradients are exchanged, how a model is shared) has one, which is shown with the result; it has the
name that it has in a run, and means the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from vflops.config.flatten import flatten
from vflops.config.parallel import CHUNKS, CommunicationSettings, ParallelSettings
from vflops.config.section import Section
from vflops.config.toml import assigned, read_toml
from vflops.errors import UsageError, shown, unknown_name
from vflops.studies.predict.exchange_time import SHARES, Algorithm, ExchangeMode

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
    layer_bytes: _Positive = None
    """Of what a layer gives, for the same batch; None: as many as pass a cut."""
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


class TrainInputs(Section):
    """What else a run is told of its training."""

    accumulate: _Some = None
    """Micro-batches of a pipeline; None: 4 a rank, or as many as divide the batch."""


class CommunicationInputs(CommunicationSettings):
    """How gradients are exchanged: a run's settings, and what its library makes of them."""

    algorithm: Algorithm = "ring"
    """Of the library's all-reduce."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Bytes on the wire for a byte of fp32; None: as the precision has them."""
    coding_bandwidth: _Positive = None
    """Bytes of gradients, in fp32, that a rank codes, adds up and decodes a second, where they are
    sent in another precision; None: that is taken to cost nothing."""
    overlap: float = Field(default=0.0, ge=0, le=1)
    """The share of a step under which gradients can be exchanged."""
    buckets: int = Field(default=1, ge=1, le=10_000)
    last_bucket: Annotated[float, Field(gt=0, le=1)] | None = None
    """The share of the bytes in the bucket that is full last; None: all are alike."""

    @model_validator(mode="after")
    def _hides(self) -> Self:
        if self.overlap and self.buckets == 1:
            raise ValueError(
                f"overlap = {self.overlap:g} with one bucket hides nothing: it is full when the"
                " backward pass is over; set communication.buckets"
            )
        if self.mode != "all-reduce" and self.algorithm != "ring":
            raise ValueError(
                f"algorithm {self.algorithm} belongs to communication.mode all-reduce, and the"
                f" mode is {self.mode}"
            )
        return self

    @property
    def way(self) -> ExchangeMode:
        """How bytes go round."""
        return self.algorithm if self.mode == "all-reduce" else self.mode


class ParallelInputs(ParallelSettings):
    """How the ranks of a model share it: a run's settings, for any number of ranks."""

    sharing: _Some = None
    """Of mode ``mixed``: ranks that share a copy, where ``mesh`` does not say it for one number of
    ranks; None: those of a node."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.mesh and self.sharing not in (None, self.mesh[1]):
            raise ValueError(
                f"mesh {list(self.mesh)} and sharing {self.sharing} contradict: give one of them"
            )
        return self

    @property
    def chunks(self) -> int:
        """Stages of a rank of the pipeline."""
        return CHUNKS if self.running == "interleaved" else 1

    def at(self, ranks: int, node: int) -> ParallelSettings:
        """As a run of so many ranks is told it; what is for other modes is left out."""
        found: dict[str, Any] = {"mode": self.mode}
        if self.mode == "mixed":
            sharing = self.sharing or node
            found |= {"within": self.within, "mesh": self.mesh or (ranks // sharing, sharing)}
        if self.inner == "model":
            found["split"] = self.split
        if self.inner == "pipeline":
            found["schedule"] = self.schedule
        return ParallelSettings(**found)


class Inputs(Section):
    """All of it."""

    step: StepInputs = StepInputs()
    model: ModelInputs = ModelInputs()
    node: NodeInputs = NodeInputs()
    link: LinkInputs = LinkInputs()
    storage: StorageInputs = StorageInputs()
    training: TrainingInputs = TrainingInputs()
    train: TrainInputs = TrainInputs()
    communication: CommunicationInputs = CommunicationInputs()
    parallel: ParallelInputs = ParallelInputs()

    @property
    def share(self) -> float:
        """Bytes on the wire for a byte of gradients."""
        own = self.communication
        found = own.share or SHARES[own.precision]
        if found is None:
            raise UsageError(
                f"communication.precision = {own.precision}: what it saves depends on the"
                " shapes of the layers and on its rank",
                hint="type it, e.g. a sixtieth of the bytes: --set communication.share=0.0167",
            )
        return found

    @property
    def coding_s(self) -> float:
        """Seconds that a rank computes to send its gradients in another precision than fp32."""
        own, size = self.communication, self.model.gradient_bytes
        if own.precision == "fp32" or own.coding_bandwidth is None or size is None:
            return 0.0
        return size / own.coding_bandwidth

    def changed(self, **sections: Mapping[str, Any]) -> Inputs:
        """The same with some values of some sections changed, and checked again."""
        data = self.model_dump(exclude_unset=True)
        return validated(_merged(data, sections))

    def figures(self) -> dict[str, Any]:
        """Return every value by its name, ``step.time_s``."""
        return flatten(self.model_dump())


def load(base: Mapping[str, Any], file: Path | None, assignments: Sequence[str]) -> Inputs:
    """``base`` changed by a TOML file and then by ``section.key=value`` assignments."""
    return validated(_merged(base, typed(file, assignments)))


def typed(file: Path | None, assignments: Sequence[str]) -> dict[str, Any]:
    """What a user says: the file, then the assignments."""
    data: dict[str, Any] = _short(read_toml(file)) if file is not None else {}
    for assignment in assignments:
        data = _merged(data, _short(assigned(assignment, example="link.bandwidth=1.25e9")))
    return data


def _short(data: Mapping[str, Any]) -> dict[str, Any]:
    """``train.parallel.mode`` as ``parallel.mode``: a run takes both."""
    train = data.get("train")
    if not isinstance(train, Mapping):
        return dict(data)
    inner = {key: train[key] for key in ("parallel", "communication") if key in train}
    rest = {key: value for key, value in train.items() if key not in inner}
    others = {key: value for key, value in data.items() if key != "train"}
    return _merged({**others, "train": rest} if rest else others, inner)


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
            hint="docs/explanation/prediction.md says what each setting is, and its unit",
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
