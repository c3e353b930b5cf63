"""The inputs of a prediction: figures that are measured or given, and how the training is run.

Figures have no default: None means *not known*, and a prediction that needs the figure says so.
Choices (how gradients are exchanged, how a model is shared) have defaults, which are shown with the
result; they have the same names and meanings as the settings of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from vflops.config.flatten import flatten
from vflops.config.parallel import STAGES_PER_RANK, CommunicationSettings, ParallelSettings
from vflops.config.section import Section
from vflops.config.toml import parse_assignment, read_toml
from vflops.errors import UsageError, format_value, unknown_name
from vflops.studies.predict.exchange_time import SHARES, Algorithm, ExchangeMode

MOST = 100_000
"""The most accelerators of a prediction."""

_Positive = Annotated[float, Field(gt=0)] | None
_Some = Annotated[int, Field(ge=1)] | None


class StepInputs(Section):
    """A training step of a single accelerator."""

    time_s: _Positive = None
    batch: _Some = None
    """Samples of a step."""
    ops_per_sample: _Positive = None


class ModelInputs(Section):
    """What is exchanged."""

    gradient_bytes: _Positive = None
    """In fp32: 4 per parameter."""
    activation_bytes: _Positive = None
    """Bytes across a cut between two layers, for the batch of one accelerator."""
    layer_bytes: _Positive = None
    """Bytes of a layer's output for the same batch; None: as many as across a cut."""
    layers: _Some = None
    """Layers that can be split, or between which a model can be cut."""


class NodeInputs(Section):
    """A node: its accelerators, and the links between them."""

    accelerators: Annotated[int, Field(ge=1, le=MOST)] | None = None
    bandwidth: _Positive = None
    """B/s from one accelerator to another."""
    latency_s: Annotated[float, Field(ge=0)] | None = None
    power_w: _Positive = None
    """Power per accelerator, including its share of everything else that was measured."""


class LinkInputs(Section):
    """The link between nodes."""

    bandwidth: _Positive = None
    """B/s of one node."""
    latency_s: Annotated[float, Field(ge=0)] | None = None


class StorageInputs(Section):
    """The file system that all jobs share; if it is not given, reading costs nothing."""

    bandwidth: _Positive = None
    bytes_per_sample: _Positive = None

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.bandwidth is None) != (self.bytes_per_sample is None):
            raise ValueError("bandwidth and bytes_per_sample belong together: set both or neither")
        return self


class TrainingInputs(Section):
    """The training up to the target, and its quality factor."""

    samples: _Some = None
    """Samples of an epoch."""
    epochs: _Positive = None
    quality_factor: Annotated[float, Field(ge=0)] | None = None
    """(quality / target)ⁿ of the whole ensemble."""


class TrainInputs(Section):
    """Other settings of the training."""

    accumulate: _Some = None
    """Micro-batches of a pipeline; None: 4 per rank, or as many as divide the batch."""


class CommunicationInputs(CommunicationSettings):
    """How gradients are exchanged: the settings of a run, and properties of its library."""

    algorithm: Algorithm = "ring"
    """The algorithm of the library's all-reduce."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Bytes sent per byte of fp32; None: given by the precision."""
    coding_bandwidth: _Positive = None
    """Bytes of fp32 gradients that a rank encodes, adds and decodes per second if they are sent in
    another precision; None: encoding costs nothing."""
    overlap: float = Field(default=0.0, ge=0, le=1)
    """The share of a step that can overlap with the exchange of gradients."""
    buckets: int = Field(default=1, ge=1, le=10_000)
    last_bucket: Annotated[float, Field(gt=0, le=1)] | None = None
    """The share of bytes in the last bucket; None: all buckets are equal."""

    @model_validator(mode="after")
    def _hides(self) -> Self:
        if self.overlap and self.buckets == 1:
            raise ValueError(
                f"overlap = {self.overlap:g} has no effect with one bucket, which is full only"
                " after the backward pass; set communication.buckets"
            )
        if self.mode != "all-reduce" and self.algorithm != "ring":
            raise ValueError(
                f"algorithm {self.algorithm} belongs to communication.mode all-reduce, but the"
                f" mode is {self.mode}"
            )
        return self

    @property
    def way(self) -> ExchangeMode:
        """The algorithm of the exchange."""
        return self.algorithm if self.mode == "all-reduce" else self.mode


class ParallelInputs(ParallelSettings):
    """How the ranks of a model share it: the settings of a run, for any number of ranks."""

    sharing: _Some = None
    """Mode ``mixed``: the ranks that share a copy, unless ``mesh`` gives them; None: those of a
    node."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.mesh and self.sharing not in (None, self.mesh[1]):
            raise ValueError(
                f"mesh {list(self.mesh)} and sharing {self.sharing} contradict: give only one"
            )
        return self

    @property
    def chunks(self) -> int:
        """Pipeline stages per rank."""
        return STAGES_PER_RANK if self.effective_schedule == "interleaved" else 1

    def at(self, ranks: int, node: int) -> ParallelSettings:
        """Return the settings of a run with so many ranks; those of other modes are left out."""
        settings: dict[str, Any] = {"mode": self.mode}
        if self.mode == "mixed":
            sharing = self.sharing or node
            settings |= {"within": self.within, "mesh": self.mesh or (ranks // sharing, sharing)}
        if self.inner == "model":
            settings["split"] = self.split
        if self.inner == "pipeline":
            settings["schedule"] = self.schedule
        return ParallelSettings(**settings)


class Inputs(Section):
    """All inputs of a prediction."""

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
        """Bytes sent per byte of gradients."""
        communication = self.communication
        share = communication.share or SHARES[communication.precision]
        if share is None:
            raise UsageError(
                f"communication.precision = {communication.precision}: how much it saves depends"
                " on the shapes of the layers and on its rank",
                hint="give it, e.g. a sixtieth of the bytes: --set communication.share=0.0167",
            )
        return share

    @property
    def coding_s(self) -> float:
        """Seconds in which a rank encodes and decodes gradients; 0 for fp32."""
        communication, size = self.communication, self.model.gradient_bytes
        if (
            communication.precision == "fp32"
            or communication.coding_bandwidth is None
            or size is None
        ):
            return 0.0
        return size / communication.coding_bandwidth

    def changed(self, **sections: Mapping[str, Any]) -> Inputs:
        """Return a copy with some values changed, validated again."""
        data = self.model_dump(exclude_unset=True)
        return validated(_merged(data, sections))

    def figures(self) -> dict[str, Any]:
        """Return every value by its full name, such as ``step.time_s``."""
        return flatten(self.model_dump())


def load(base: Mapping[str, Any], file: Path | None, assignments: Sequence[str]) -> Inputs:
    """Return ``base`` changed by a TOML file and then by ``section.key=value`` assignments."""
    return validated(_merged(base, given(file, assignments)))


def given(file: Path | None, assignments: Sequence[str]) -> dict[str, Any]:
    """Return what the user gives: the file, changed by the assignments."""
    data: dict[str, Any] = _short(read_toml(file)) if file is not None else {}
    for assignment in assignments:
        data = _merged(data, _short(parse_assignment(assignment, example="link.bandwidth=1.25e9")))
    return data


def _short(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``train.parallel.mode`` as ``parallel.mode``: a run accepts both."""
    train = data.get("train")
    if not isinstance(train, Mapping):
        return dict(data)
    inner = {key: train[key] for key in ("parallel", "communication") if key in train}
    rest = {key: value for key, value in train.items() if key not in inner}
    others = {key: value for key, value in data.items() if key != "train"}
    return _merged({**others, "train": rest} if rest else others, inner)


def validated(data: Mapping[str, Any]) -> Inputs:
    """Return the inputs; raise an error that names a wrong setting and what was expected."""
    try:
        return Inputs.model_validate(data)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        location = [str(part) for part in fault["loc"] if part in _names(fault["loc"])]
        name = ".".join(location)
        if fault["type"] == "extra_forbidden":
            raise unknown_name("setting", name, _every_name(location)) from error
        if isinstance(fault["input"], Mapping):
            message = f"settings {name}: {fault['msg'].removeprefix('Value error, ')}"
            raise UsageError(message) from error
        raise UsageError(
            f"setting {name} = {format_value(fault['input'])}: {fault['msg'].lower()}",
            hint="docs/explanation/prediction.md lists all settings with their units",
        ) from error


def _names(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return the parts of a location that the user wrote: pydantic adds members of unions."""
    return loc[:2]


def _every_name(location: Sequence[str]) -> list[str]:
    if len(location) == 1:
        return list(Inputs.model_fields)
    section = Inputs.model_fields[location[0]].annotation
    assert isinstance(section, type) and issubclass(section, BaseModel)
    return [f"{location[0]}.{key}" for key in section.model_fields]


def _merged(data: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(data)
    for key, value in change.items():
        before = merged.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(before, value) if both else value  # type: ignore[arg-type]
    return merged
