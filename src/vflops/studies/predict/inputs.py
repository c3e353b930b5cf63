"""The inputs of a prediction: measured or given figures, and the settings of the training.

Figures have no default: None means *not known*, and a prediction that needs the figure raises an
error. Settings (how gradients are exchanged, how a model is shared) have defaults, which are shown
with the result; their names and meanings are those of the settings of a run.
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

MAX_ACCELERATORS = 100_000
"""The largest number of accelerators that is predicted."""

_Positive = Annotated[float, Field(gt=0)] | None
_Count = Annotated[int, Field(ge=1)] | None
_NotNegative = Annotated[float, Field(ge=0)] | None


class StepInputs(Section):
    """A training step on a single accelerator."""

    time_s: _Positive = None
    batch: _Count = None
    """Samples per step."""
    ops_per_sample: _Positive = None


class ModelInputs(Section):
    """The sizes of what ranks send each other."""

    gradient_bytes: _Positive = None
    """Bytes of all gradients in fp32: 4 per parameter."""
    activation_bytes: _Positive = None
    """Bytes across a cut between two layers, for the batch of one accelerator."""
    layer_bytes: _Positive = None
    """Bytes of a layer's output for the same batch; if None, those across a cut are used."""
    layers: _Count = None
    """The largest number of stages that a model can be cut into."""
    sums: Annotated[int, Field(ge=0)] | None = None
    """Sums over the ranks per step of tensor parallelism, 0 if nothing can be divided; if None, one
    per layer and direction."""
    sum_bytes: _Positive = None
    """Mean bytes of such a sum for the batch of one accelerator; if None, those of a layer."""
    divisor: _Count = None
    """The number of heads or channels that the ranks of tensor parallelism must divide evenly."""
    block_bytes: _NotNegative = None
    """Bytes of the weights in blocks, which sharded ranks gather twice; if None, all."""
    tied_bytes: _NotNegative = None
    """Bytes of tied weights, of which the first and the last stage have a copy; if None, 0."""
    gathered_bytes: _NotNegative = None
    """Bytes of the divided matrices that the optimizer gathers once per step; if None, 0."""


class NodeInputs(Section):
    """The accelerators of a node, and the links between them."""

    accelerators: Annotated[int, Field(ge=1, le=MAX_ACCELERATORS)] | None = None
    bandwidth: _Positive = None
    """B/s from one accelerator to another."""
    latency_s: Annotated[float, Field(ge=0)] | None = None
    power_w: _Positive = None
    """Power per accelerator, including its share of the other components that were measured."""


class LinkInputs(Section):
    """The links between nodes."""

    bandwidth: _Positive = None
    """B/s of the link of one node, which all its ranks share."""
    latency_s: Annotated[float, Field(ge=0)] | None = None


class StorageInputs(Section):
    """The file system that all jobs share; by default, reading takes no time."""

    bandwidth: _Positive = None
    bytes_per_sample: _Positive = None

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.bandwidth is None) != (self.bytes_per_sample is None):
            raise ValueError("bandwidth and bytes_per_sample belong together: set both or neither")
        return self


class TrainingInputs(Section):
    """A training run up to the target quality, and its quality factor."""

    samples: _Count = None
    """Samples per epoch."""
    epochs: _Positive = None
    quality_factor: Annotated[float, Field(ge=0)] | None = None
    """(quality / target)ⁿ of the whole ensemble; above 1, it counts as 1."""


class TrainInputs(Section):
    """Other settings of the training run."""

    accumulate: _Count = None
    """Micro-batches of a pipeline; by default 4 per rank, or fewer if 4 do not divide the batch."""


class CommunicationInputs(CommunicationSettings):
    """How gradients are exchanged: the settings of a run, and properties of its library."""

    algorithm: Algorithm = "ring"
    """The algorithm that the library uses for its all-reduce."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Bytes sent per byte of fp32; by default, the precision determines them."""
    coding_bandwidth: _Positive = None
    """Bytes of fp32 gradients that a rank encodes, adds and decodes per second if they are sent in
    another precision; by default, encoding takes no time."""
    overlap: float = Field(default=0.0, ge=0, le=1)
    """The share of a step that can overlap with the exchange of gradients."""
    buckets: int = Field(default=1, ge=1, le=10_000)
    last_bucket: Annotated[float, Field(gt=0, le=1)] | None = None
    """The share of the bytes in the last bucket; by default, all buckets are equal."""

    @model_validator(mode="after")
    def _check_overlap_and_algorithm(self) -> Self:
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
    def exchange_mode(self) -> ExchangeMode:
        """The algorithm of the exchange."""
        return self.algorithm if self.mode == "all-reduce" else self.mode


class ParallelInputs(ParallelSettings):
    """How the ranks of a model share it: the settings of a run, for any number of ranks."""

    sharing: _Count = None
    """The ranks that share a copy in mode ``mixed``, unless ``mesh`` says so; by default those of
    a node."""

    @model_validator(mode="after")
    def _check_sharing(self) -> Self:
        if self.mesh and self.sharing not in (None, self.mesh[1]):
            raise ValueError(
                f"mesh {list(self.mesh)} and sharing {self.sharing} contradict each other: give"
                " only one"
            )
        return self

    @property
    def chunks(self) -> int:
        """Pipeline stages per rank."""
        return STAGES_PER_RANK if self.effective_schedule == "interleaved" else 1

    def run_settings(self, ranks: int, node: int) -> ParallelSettings:
        """Return the settings of a run with ``ranks`` ranks; those of other modes are left out."""
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
                hint="give the share of bytes that is sent: --set communication.share=0.0167",
            )
        return share

    @property
    def coding_s(self) -> float:
        """The seconds per step that a rank spends encoding and decoding gradients; 0 for fp32."""
        communication, size = self.communication, self.model.gradient_bytes
        if (
            communication.precision == "fp32"
            or communication.coding_bandwidth is None
            or size is None
        ):
            return 0.0
        return size / communication.coding_bandwidth

    def with_changes(self, **sections: Mapping[str, Any]) -> Inputs:
        """Return a copy with some values changed; the copy is validated."""
        data = self.model_dump(exclude_unset=True)
        return parse_inputs(_merged(data, sections))

    def figures(self) -> dict[str, Any]:
        """Return every value by its full name, such as ``step.time_s``."""
        return flatten(self.model_dump())


def load(base: Mapping[str, Any], file: Path | None, assignments: Sequence[str]) -> Inputs:
    """Return ``base``, overridden by a TOML file and then by ``section.key=value`` assignments."""
    return parse_inputs(_merged(base, read_user_inputs(file, assignments)))


def read_user_inputs(file: Path | None, assignments: Sequence[str]) -> dict[str, Any]:
    """Return the values that the user gave: those of the file, overridden by the assignments."""
    data: dict[str, Any] = _with_short_names(read_toml(file)) if file is not None else {}
    for assignment in assignments:
        values = _with_short_names(parse_assignment(assignment, example="link.bandwidth=1.25e9"))
        data = _merged(data, values)
    return data


def _with_short_names(data: Mapping[str, Any]) -> dict[str, Any]:
    """Rename ``train.parallel.mode`` to ``parallel.mode``, and so on: a run accepts both names."""
    train = data.get("train")
    if not isinstance(train, Mapping):
        return dict(data)
    inner = {key: train[key] for key in ("parallel", "communication") if key in train}
    rest = {key: value for key, value in train.items() if key not in inner}
    others = {key: value for key, value in data.items() if key != "train"}
    return _merged({**others, "train": rest} if rest else others, inner)


def parse_inputs(data: Mapping[str, Any]) -> Inputs:
    """Return the inputs; raise UsageError with the name of a wrong setting and what is expected."""
    try:
        return Inputs.model_validate(data)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        location = [str(part) for part in fault["loc"] if part in _user_parts(fault["loc"])]
        name = ".".join(location)
        if fault["type"] == "extra_forbidden":
            raise unknown_name("setting", name, _valid_names(location)) from error
        if isinstance(fault["input"], Mapping):
            message = f"settings {name}: {fault['msg'].removeprefix('Value error, ')}"
            raise UsageError(message) from error
        raise UsageError(
            f"setting {name} = {format_value(fault['input'])}: {fault['msg'].lower()}",
            hint="docs/explanation/prediction.md lists all settings with their units",
        ) from error


def _user_parts(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return the parts of a location that the user wrote; pydantic adds the members of unions."""
    return loc[:2]


def _valid_names(location: Sequence[str]) -> list[str]:
    """Return all sections, or all names in the section of ``location``."""
    if len(location) == 1:
        return list(Inputs.model_fields)
    section = Inputs.model_fields[location[0]].annotation
    assert isinstance(section, type) and issubclass(section, BaseModel)
    return [f"{location[0]}.{key}" for key in section.model_fields]


def _merged(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(data)
    for key, value in changes.items():
        before = merged.get(key)
        are_sections = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(before, value) if are_sections else value  # type: ignore[arg-type]
    return merged
