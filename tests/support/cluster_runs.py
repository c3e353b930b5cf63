"""Runs on the nodes of a scheduler: ensembles as published, whose nodes measured their ceilings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.forged_runs import ACCELERATORS, Forger, trained_run
from tests.support.sample_parts import measured
from vflops.record.folder import RunFolder, file_hash
from vflops.record.formats.measured_node import MeasuredNode, measured_node_file
from vflops.record.formats.measurement import Loaded, Measurement, Trial
from vflops.record.formats.node import Clock, NodeRecord, node_file
from vflops.record.formats.system import LAYERS, Fact, Layer, SystemRecord
from vflops.record.installed_package import installed_package
from vflops.record.readout.contents import Contents

NODES = ("n1", "n2", "n3", "n4")
KIND = "1 × Test GPU, 2 CPUs, 4 GiB, Test CPU <1>"
SUBMITTED_FROM = "8 CPUs, 16 GiB, Login CPU"
MEMORY_B = 4 << 30
QUICK_FLOPS = 1.9e11
MODELS = 4


def cluster_run(parent: Path, patch: pytest.MonkeyPatch, models: int = MODELS) -> Path:
    """Four ensembles; model k of each trained on node k."""
    forger = Forger(trained_run(parent, patch, models=models))
    for line in forger.lines("measurement"):
        line["data"].update(kind=KIND, node="n1")
        if line["data"]["benchmark"] == "all-reduce":
            line["data"].update(kind=None, node="n1, n2")
    for line in forger.lines("load"):
        line["data"]["node"] = "n1"
    for number, name in enumerate(NODES):
        full = full_set(forger) if number == 0 else ()
        add_node(forger, node(name, full=full))
    on_nodes(forger, *NODES)
    describe_first_node(forger)
    forger.sealed()
    return forger.folder.path


def node(name: str, **facts: Any) -> MeasuredNode:
    """A node that made the short measurement."""
    given = {
        "node": name,
        "host": f"host-{name}",
        "allocation": "17",
        "kind": KIND,
        "system": system(),
        "quick": quick(name),
        **facts,
    }
    return MeasuredNode.model_validate(given)


def quick(name: str, value: float = QUICK_FLOPS) -> tuple[Measurement, ...]:
    """The short measurement of a node: its arithmetic and its memory."""
    return (
        measured("gemm", "peak", "fp32", value, node=name, device="cuda:0"),
        measured("memory", "copy", None, 2e10, node=name, device="cuda:0"),
    )


def system(**changed: Any) -> SystemRecord:
    """The description of a node; ``_`` in the name of a fact stands for a space."""
    hardware = {
        "cpu model": "Test CPU <1>",
        "usable cpus": 2,
        "memory": MEMORY_B,
        "cpu clock now": 2000.0,
        **{name.replace("_", " "): value for name, value in ACCELERATORS.items()},
    }
    software = {"kernel": "6.1", "allocation node": 0}
    for name, value in changed.items():
        facts = software if name in ("kernel", "allocation_node") else hardware
        facts[name.replace("_", " ")] = value
    layers = {"hardware": hardware, "operating system": software}
    return SystemRecord(
        gathered_utc="2026-01-01T00:00:00+00:00",
        layers=tuple(_layer(name, layers.get(name, {})) for name in LAYERS),
    )


def _layer(name: str, facts: dict[str, Any]) -> Layer:
    known = tuple(
        Fact(name=name, value=value, unit="B" if name == "memory" else None, source="test")
        for name, value in facts.items()
    )
    unknown = Fact(name="nothing", value=None, source="test", reason="not looked for")
    return Layer(name=name, facts=known or (unknown,))


def full_set(forger: Forger) -> tuple[Measurement, ...]:
    """The full set as the log has it."""
    lines = [Measurement.model_validate(line["data"]) for line in forger.lines("measurement")]
    return tuple(item for item in lines if item.kind is not None)


def add_node(forger: Forger, measured_node: MeasuredNode) -> None:
    """Write the file of a node, and note it in the log of the run."""
    path = measured_node_file(forger.folder.path, measured_node.node)
    path.parent.mkdir(exist_ok=True)
    if measured_node.full:
        keys = tuple(item.key for item in measured_node.full)
        load = (Loaded(others_share=0.02, node=measured_node.node),)
        measured_node = measured_node.model_copy(update={"planned": keys, "loads": load})
    measured_node.write(path)
    log = forger.logs[forger.attempt(0) / "events.jsonl"]
    log.insert(-1, {**log[-2], "kind": "node-measured", "data": {"node": measured_node.node}})
    pin_node(forger, measured_node.node)


def pin_node(forger: Forger, name: str) -> None:
    """Note the hash of a node's file."""
    digest = file_hash(measured_node_file(forger.folder.path, name))
    for line in forger.lines("node-measured"):
        if line["data"]["node"] == name:
            line["data"]["sha256"] = digest


def change_node(name: str, change: Callable[[MeasuredNode], dict[str, Any]]) -> Any:
    """A break that changes fields of a node's file."""

    def harm(forger: Forger) -> None:
        path = measured_node_file(forger.folder.path, name)
        known = MeasuredNode.read(path)
        known.model_copy(update=change(known)).write(path)
        pin_node(forger, name)

    return harm


def on_nodes(forger: Forger, *names: str) -> None:
    """Let the models of every ensemble train on these nodes, one each."""
    for path in sorted((forger.folder.path / "jobs").glob("[1-9]*")):
        job = int(path.name)
        trained_on(forger, job, [names[(job - 1) % len(names)]])


def trained_on(forger: Forger, job: int, names: Sequence[str], host: str = "") -> None:
    """Let a job train on these nodes."""
    attempt = forger.attempt(job)
    for old in attempt.glob("node-*.json"):
        old.unlink()
    facts = tuple(fact for name in LAYERS[:2] for fact in system().layer(name).facts)
    for number, name in enumerate(names):
        NodeRecord(
            node=number,
            nodes=len(names),
            host=host or f"host-{name}",
            name=name,
            reference="login",
            clock=Clock(offset_s=0.0, uncertainty_s=1e-4),
            facts=facts,
            package_sha256=installed_package().sha256,
        ).write(node_file(attempt, number))


def describe_first_node(forger: Forger) -> None:
    """Let system.json describe the first node, with the machine that submitted the run."""
    submitting = SystemRecord.read(forger.folder.system_file)
    own = system().layers[:6]
    SystemRecord(
        gathered_utc=submitting.gathered_utc,
        layers=(*own, *submitting.layers[6:]),
        node="n1",
        submitted_from=SUBMITTED_FROM,
    ).write(forger.folder.system_file)
    for line in forger.lines("described"):
        line["data"]["sha256"] = file_hash(forger.folder.system_file)


def second_kind(forger: Forger, kind: str = "fast", factor: float = 10.0) -> None:
    """Let n4 be of a faster kind, with a full set of its own."""
    full = tuple(
        item.model_copy(
            update={
                "node": "n4",
                "kind": kind,
                "value": item.value and factor * item.value,
                "samples": tuple(factor * sample for sample in item.samples),
            }
        )
        for item in full_set(forger)
    )
    planned = tuple(item.key for item in full)
    change_node("n4", lambda known: {"kind": kind, "full": full, "planned": planned})(forger)
    log = forger.logs[forger.attempt(0) / "events.jsonl"]
    for item in full:
        data = item.model_dump(mode="json")
        log.insert(-1, {**log[-2], "kind": "measurement", "data": data})


def link(case: str, ranks: int, value: float, nodes: str) -> Measurement:
    """An all-reduce between ranks."""
    trial = Trial(setting={"size_bytes": 1 << 20, "ranks": ranks}, value=value)
    setting = {"ranks": ranks}
    return measured(
        "all-reduce", case, None, value, setting=setting, tried=(trial,), node=nodes, device="cuda"
    )


def contents(path: Path) -> Contents:
    return Contents(RunFolder.open(path))
