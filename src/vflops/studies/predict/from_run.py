"""What a run folder says of the inputs: each figure with its source, or why it has none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vflops.errors import UsageError
from vflops.record.formats.measurement import Measurement
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.roofline.analysis import measured_ceilings
from vflops.results.score.score_file import TrainingScore
from vflops.results.score.scoring import score
from vflops.studies.predict.stage_traffic import cuts

BYTES_OF_A_GRADIENT = 4
_WHOLE = ("fp32", "tf32")
"""Training precisions whose activations have 4 bytes; in others they have 2."""


@dataclass
class Found:
    """Figures by their names, and reasons for those that are not there."""

    values: dict[str, float | int] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, value: float | int | None, source: str, reason: str) -> None:
        """Keep a figure, or why it is not known."""
        if value is None:
            self.absent[name] = reason
        else:
            self.values[name], self.sources[name] = value, source

    def sections(self) -> dict[str, Any]:
        """The figures as the inputs take them."""
        found: dict[str, dict[str, float | int]] = {}
        for name, value in self.values.items():
            section, _, key = name.partition(".")
            found.setdefault(section, {})[key] = value
        return found


def read_inputs(contents: Contents) -> Found:
    """The first complete training by one rank, the all-reduce of the node and its accelerators."""
    found = Found()
    trainings = [each for each in score(contents).trainings if each.complete and each.speed]
    if not trainings:
        raise UsageError(
            f"run {contents.folder.path} has no complete training with counted operations",
            hint="train one: vflops run image-classification, or type the figures with --set",
        )
    alone = next((each for each in trainings if each.ranks == 1), None)
    _training(found, contents, alone or trainings[0])
    _network(found, contents)
    _accelerators(found, contents)
    return found


def _training(found: Found, contents: Contents, own: TrainingScore) -> None:
    source = f"job {own.job}, {own.workload}"
    (job,) = (each for each in contents.trained if each.record.job == own.job)
    speed, ranks = own.speed, own.ranks
    assert speed is not None
    shared = f"{source} ran on {ranks} ranks: its steps hold what they exchanged"
    step_s = own.batch / speed.samples_per_s if own.batch and ranks == 1 else None
    found.take("step.time_s", step_s, f"{source}: {own.batch} samples a step", shared)
    batch = own.batch // ranks if own.batch else None
    found.take("step.batch", batch, source, "the batch is not recorded")
    ops = own.work.ops_total if own.work else None
    found.take("step.ops_per_sample", ops, f"{source}: counted", "operations are not known")
    parameters = job.started.parameters if job.started else None
    size = None if parameters is None else BYTES_OF_A_GRADIENT * parameters
    found.take("model.gradient_bytes", size, f"{source}: 4 × {parameters} parameters", "no count")
    _cuts(found, contents, own, job)
    found.take("training.samples", job.record.data.train or None, source, "no samples")
    reached = f"{source} did not reach its target"
    quality = own.quality
    found.take("training.epochs", quality.epochs_to_quality, f"{source}: to the target", reached)
    found.take("training.quality_factor", quality.penalty, source, "no evaluation")
    power, devices = own.power, job.devices
    watts = None if power.power_w is None else power.power_w / devices
    parts = ", ".join(power.includes)
    found.take("node.power_w", watts, f"{source}: {parts}", power.reason or "power not measured")


def _cuts(found: Found, contents: Contents, own: TrainingScore, job: TrainedJob) -> None:
    """What parts of the model would send each other, by the graph that was counted."""
    graph = next((each for each in contents.graphs if each.model == own.workload), None)
    precision = job.started.precision if job.started else "fp32"
    shared = None if graph is None else cuts(graph, halved=precision not in _WHOLE)
    batch = own.batch // own.ranks if own.batch else None
    if graph is None:
        reason = f"the run has no graph of {own.workload}"
    else:
        reason = f"{own.workload} has no two layers" if batch else "the batch is not recorded"
    if shared is None or batch is None:
        names = ("model.activation_bytes", "model.layer_bytes", "model.layers")
        found.absent.update(dict.fromkeys(names, reason))
        return
    source = f"graphs/{own.workload}.json"
    means = f"{source}, {precision}: mean of"
    cut, each = batch * shared.activation_bytes, batch * shared.layer_bytes
    stages = f"{means} the cuts into {shared.stages} stages"
    found.take("model.activation_bytes", cut, stages, reason)
    found.take("model.layer_bytes", each, f"{means} what the layers give", reason)
    found.take("model.layers", shared.layers, f"{source}: with weights", reason)


def _network(found: Found, contents: Contents) -> None:
    """The all-reduce between local ranks: the link within a node."""
    machine = measured_ceilings(contents.measurements)
    case = machine.network_case
    source = f"all-reduce {case}"
    told = [item.reason for item in contents.measurements if item.benchmark == "all-reduce"]
    reason = next(filter(None, reversed(told)), "no all-reduce between such devices was measured")
    found.take("node.bandwidth", machine.network, source, reason)
    measured = [
        item
        for item in contents.measurements
        if item.benchmark == "all-reduce" and item.case == case and item.value is not None
    ]
    latency_s = _latency_s(measured[0]) if measured else None
    found.take("node.latency_s", latency_s, f"{source}: its smallest message", reason)
    between = "a run measures links within a node only"
    for name in ("link.bandwidth", "link.latency_s"):
        found.absent[name] = between


def _latency_s(item: Measurement) -> float | None:
    """Of a ring's step: the smallest message's time, less what its bytes take, over 2(n−1).

    A trial's value is 2(n−1)/n · bytes / time.
    """
    trials = [each for each in item.tried if each.value > 0 and "size_bytes" in each.setting]
    if not trials or not item.value:
        return None
    least = min(trials, key=lambda each: int(each.setting["size_bytes"]))
    ranks = int(least.setting.get("ranks", item.setting.get("ranks", 0)))
    if ranks < 2:
        return None
    sent = 2 * (ranks - 1) / ranks * int(least.setting["size_bytes"])
    return max(0.0, sent / least.value - sent / item.value) / (2 * (ranks - 1))


def _accelerators(found: Found, contents: Contents) -> None:
    path = contents.folder.system_file
    facts = contents.read(SystemRecord, path).layers if path.is_file() else ()
    counts = [
        fact.value
        for layer in facts
        for fact in layer.facts
        if fact.name == "accelerators" and isinstance(fact.value, int) and fact.value
    ]
    value = counts[0] if counts else None
    found.take("node.accelerators", value, "system.json", "system.json names no accelerators")
