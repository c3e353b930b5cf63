"""Reads the inputs of a prediction from a run, with the source of each or why it is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vflops.errors import UsageError
from vflops.record.formats.measurement import Measurement
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.job_ceilings import between_nodes, main_ceilings
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.roofline.analysis import COMPUTE, measured_ceilings
from vflops.results.score.score_file import TrainingScore
from vflops.results.score.scoring import score
from vflops.results.score.unscored import require_measurement
from vflops.studies.predict.divided_traffic import DividedTraffic, divided_traffic
from vflops.studies.predict.stage_traffic import find_cuts

BYTES_PER_GRADIENT = 4
_FULL_PRECISION = ("fp32", "tf32")
"""Training precisions with activations of 4 bytes; those of other precisions have 2."""


@dataclass
class RunInputs:
    """The inputs that a run provides."""

    values: dict[str, float | int] = field(default_factory=dict)
    """The known inputs by full name, such as ``step.time_s``."""
    sources: dict[str, str] = field(default_factory=dict)
    """Where each known input comes from."""
    absent: dict[str, str] = field(default_factory=dict)
    """Why the other inputs are not known."""

    def add(self, name: str, value: float | int | None, source: str, reason: str) -> None:
        """Add an input with its source or, if its value is None, with the reason."""
        if value is None:
            self.absent[name] = reason
        else:
            self.values[name], self.sources[name] = value, source

    def sections(self) -> dict[str, Any]:
        """Return the inputs by section."""
        by_section: dict[str, dict[str, float | int]] = {}
        for name, value in self.values.items():
            section, _, key = name.partition(".")
            by_section.setdefault(section, {})[key] = value
        return by_section


def read_inputs(contents: Contents) -> RunInputs:
    """Return the inputs from a complete training job and the measured ceilings of a run.

    A job with one rank is preferred.
    """
    require_measurement(contents, "nothing can be predicted from them")
    inputs = RunInputs()
    trainings = [
        training for training in score(contents).trainings if training.complete and training.speed
    ]
    if not trainings:
        raise UsageError(
            f"run {contents.folder.path} has no complete training with counted operations",
            hint="run one: vflops run image-classification or language-model, or give the inputs "
            "with --set",
        )
    single_rank = next((training for training in trainings if training.ranks == 1), None)
    _add_training(inputs, contents, single_rank or trainings[0])
    _add_network(inputs, contents)
    _add_accelerators(inputs, contents)
    return inputs


def _add_training(inputs: RunInputs, contents: Contents, training: TrainingScore) -> None:
    source = f"job {training.job}, {training.workload}"
    (job,) = (trained for trained in contents.training_jobs if trained.record.job == training.job)
    speed, ranks = training.speed, training.ranks
    assert speed is not None
    several_ranks = f"{source} ran on {ranks} ranks, so its steps include communication"
    step_s = training.batch / speed.samples_per_s if training.batch and ranks == 1 else None
    inputs.add("step.time_s", step_s, f"{source}: {training.batch} samples per step", several_ranks)
    batch = training.batch // ranks if training.batch else None
    inputs.add("step.batch", batch, source, "the batch is not recorded")
    ops = training.work.ops_total if training.work else None
    inputs.add("step.ops_per_sample", ops, f"{source}: counted", "operations are not known")
    parameters = job.started.parameters if job.started else None
    size = None if parameters is None else BYTES_PER_GRADIENT * parameters
    inputs.add(
        "model.gradient_bytes", size, f"{source}: 4 × {parameters} parameters", "not counted"
    )
    _add_cuts(inputs, contents, training, job)
    inputs.add("training.samples", job.record.data.train or None, source, "no samples")
    not_reached = f"{source} did not reach its target"
    quality = training.quality
    to_target = f"{source}: to the target"
    inputs.add("training.epochs", quality.epochs_to_quality, to_target, not_reached)
    inputs.add("training.quality_factor", quality.factor, source, "no evaluation")
    power, devices = training.power, job.devices
    watts = None if power.power_w is None else power.power_w / devices
    parts = ", ".join(power.includes)
    inputs.add("node.power_w", watts, f"{source}: {parts}", power.reason or "power not measured")


def _add_cuts(
    inputs: RunInputs, contents: Contents, training: TrainingScore, job: TrainedJob
) -> None:
    """Add the bytes that parts of the model would send each other, from the counted graph."""
    graph = next((g for g in contents.graphs if g.model == training.workload), None)
    precision = job.started.precision if job.started else "fp32"
    half = precision not in _FULL_PRECISION
    cuts = None if graph is None else find_cuts(graph, half_precision=half)
    batch = training.batch // training.ranks if training.batch else None
    if graph is None:
        reason = f"the run has no graph of {training.workload}"
    else:
        reason = (
            f"{training.workload} has fewer than two layers"
            if batch
            else "the batch is not recorded"
        )
    if cuts is None or batch is None:
        names = ("model.activation_bytes", "model.layer_bytes", "model.layers")
        inputs.absent.update(dict.fromkeys(names, reason))
        return
    source = f"graphs/{training.workload}.json"
    means = f"{source}, {precision}: mean of"
    cut_bytes, layer_bytes = batch * cuts.activation_bytes, batch * cuts.layer_bytes
    stages = f"{means} the cuts into {cuts.stages} stages"
    inputs.add("model.activation_bytes", cut_bytes, stages, reason)
    inputs.add("model.layer_bytes", layer_bytes, f"{means} the layer outputs", reason)
    inputs.add("model.layers", cuts.layers, f"{source}: with weights", reason)
    if graph is not None and graph.divisible is not None:
        half_weights = half and not precision.startswith("mixed")
        divided = divided_traffic(
            graph, graph.divisible, half_precision=half, half_weights=half_weights
        )
        _add_divided(inputs, divided, batch, job, f"{source}, {precision}")


def _add_divided(
    inputs: RunInputs, divided: DividedTraffic, batch: int, job: TrainedJob, source: str
) -> None:
    """Add what ranks send if they divide the model."""
    declared = f"{source}: as the model declares"
    none_declared = "the model declares no channel_pairs"
    inputs.add("model.sums", divided.sums, declared, none_declared)
    size = batch * divided.sum_bytes if divided.sums else None
    inputs.add("model.sum_bytes", size, f"{source}: mean of the sums", none_declared)
    divisor = divided.divisor if divided.sums else None
    inputs.add("model.divisor", divisor, declared, none_declared)
    inputs.add("model.block_bytes", divided.block_bytes, declared, "")
    inputs.add("model.tied_bytes", divided.tied_bytes, declared, "")
    if job.record.settings["train"].get("optimizer") == "muon":
        gathered = f"{declared}: gathered by Muon"
        inputs.add("model.gathered_bytes", divided.hidden_bytes, gathered, "")


def _add_network(inputs: RunInputs, contents: Contents) -> None:
    """Add the links within a node and between nodes, from the measured all-reduce."""
    every = _without_trees(main_ceilings(contents))
    _add_link(
        inputs,
        "node",
        [item for item in every if not between_nodes(item)],
        "no all-reduce between the devices of a node was measured",
    )
    reason = "no all-reduce between one rank of each node was measured"
    if not contents.measured_nodes:
        reason = "a run measures only links within a node"
    _add_link(inputs, "link", [item for item in every if _is_one_per_node(item)], reason)
    pairs = [item for item in every if item.benchmark == "point-to-point" and item.value]
    if "link.bandwidth" not in inputs.values and pairs and _same_device(pairs[0], every):
        source = f"point-to-point {pairs[0].case}: median over pairs of nodes"
        del inputs.absent["link.bandwidth"]
        inputs.add("link.bandwidth", pairs[0].value, source, reason)


def _add_link(
    inputs: RunInputs, section: str, measurements: Sequence[Measurement], unknown: str
) -> None:
    """Add the bandwidth and the latency of a link, from the fastest all-reduce over it."""
    reduced = [item for item in measurements if item.benchmark == "all-reduce"]
    reason = next(filter(None, (item.reason for item in reversed(reduced))), unknown)
    compute = [item for item in measurements if item.benchmark in COMPUTE]
    machine = measured_ceilings([*compute, *reduced])
    source = f"all-reduce {machine.network_case}"
    inputs.add(f"{section}.bandwidth", machine.network, source, reason)
    fastest = [item for item in reduced if item.case == machine.network_case and item.value]
    latency_s = _latency_s(fastest[0]) if fastest else None
    inputs.add(f"{section}.latency_s", latency_s, f"{source}: smallest message", reason)


def _same_device(link: Measurement, measurements: Sequence[Measurement]) -> bool:
    """Whether a link connects the kind of device that computes: CPUs, or accelerators."""
    kinds = {item.device.partition(":")[0] for item in measurements if item.benchmark in COMPUTE}
    return link.device.partition(":")[0] in kinds


def _is_one_per_node(item: Measurement) -> bool:
    """Whether an all-reduce has one rank on each node, so that all its traffic is between nodes.

    The compute ceilings, which say whether accelerators train, are kept.
    """
    if item.benchmark in COMPUTE:
        return True
    ranks, nodes = item.setting.get("ranks"), _node_count(item)
    return between_nodes(item) and ranks == nodes


def _node_count(item: Measurement) -> int:
    names = (item.node or "").split(", ")
    return int(names[0].split()[0]) if names[0].endswith(" nodes") else len(names)


def _without_trees(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the measurements without all-reduces by a tree: bandwidth and latency are a ring's."""
    return [
        item
        for item in measurements
        if item.benchmark != "all-reduce" or not item.case.endswith("-tree")
    ]


def _latency_s(item: Measurement) -> float | None:
    """Return the latency of one step of a ring, from the all-reduce of the smallest message.

    It is (time − sent bytes / bandwidth) / 2(n−1). The value of a trial is the bus bandwidth,
    2(n−1)/n · bytes / time.
    """
    trials = [trial for trial in item.tried if trial.value > 0 and "size_bytes" in trial.setting]
    if not trials or not item.value:
        return None
    smallest = min(trials, key=lambda trial: int(trial.setting["size_bytes"]))
    ranks = int(smallest.setting.get("ranks", item.setting.get("ranks", 0)))
    if ranks < 2:
        return None
    sent = 2 * (ranks - 1) / ranks * int(smallest.setting["size_bytes"])
    return max(0.0, sent / smallest.value - sent / item.value) / (2 * (ranks - 1))


def _add_accelerators(inputs: RunInputs, contents: Contents) -> None:
    path = contents.folder.system_file
    facts = contents.read(SystemRecord, path).layers if path.is_file() else ()
    counts = [
        fact.value
        for layer in facts
        for fact in layer.facts
        if fact.name == "accelerators" and isinstance(fact.value, int) and fact.value
    ]
    value = counts[0] if counts else None
    inputs.add("node.accelerators", value, "system.json", "system.json lists no accelerators")
