"""Name, framework and main facts of a system, as shown in a ranking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from vflops.publish.ranking.entry import Result
from vflops.record.formats.node import NodeRecord
from vflops.record.formats.system import Fact, SystemRecord

_FACTS = {
    "hardware": (
        "machine model",
        "cpu model",
        "cpu sockets",
        "usable cpus",
        "memory",
        "accelerators",
        "accelerator 0 model",
        "accelerator 0 memory",
        "rdma ports",
        "file system",
    ),
    "operating system": ("distribution", "kernel", "container", "scheduler"),
    "communication libraries": ("nccl", "mpi"),
    "accelerator libraries": ("nvidia driver", "cuda", "cudnn", "rocm"),
    "framework": ("torch", "python", "vflops"),
}
"""The facts shown on the page of a system, by layer of ``system.json``."""
_NOT_DESCRIBED = "not described"

_NODE_LAYERS = ("hardware", "operating system")
"""The layers that the records of nodes describe."""


def system_name(
    record: SystemRecord, results: Sequence[Result], nodes: Sequence[NodeRecord] = ()
) -> str:
    """Return a short name for a system: its accelerators with their number, and its processor.

    ``nodes`` are the nodes of a cluster; ``record`` may describe the machine that submitted.
    """
    machines = Counter(_machine_name(node.facts) for node in nodes)
    if machines:
        return " + ".join(_times(number, machine) for machine, number in machines.items())
    parts = [f"{number} × {model}" for model, number in record.accelerator_counts.items()]
    if not parts:  # the machine in system.json may not be the one that trained
        parts = list(dict.fromkeys(result.device for result in results if result.accelerators))
    parts += _processors(record.layer("hardware").facts)
    return ", ".join(parts) or _NOT_DESCRIBED


def system_facts(record: SystemRecord, nodes: Sequence[NodeRecord] = ()) -> list[dict[str, str]]:
    """Return the names and values of those main facts that are known.

    The hardware and the operating system are those of the first of ``nodes``, if there are any.
    """
    facts = [
        {"name": fact.name, "value": _with_unit(fact.value, fact.unit)}
        for layer, names in _FACTS.items()
        for fact in sorted(
            (fact for fact in _layer_facts(record, nodes, layer) if fact.name in names),
            key=lambda fact: names.index(fact.name),
        )
        if fact.value is not None
    ]
    return [{"name": "nodes", "value": str(len(nodes))}, *facts] if nodes else facts


def _layer_facts(record: SystemRecord, nodes: Sequence[NodeRecord], layer: str) -> Sequence[Fact]:
    return nodes[0].facts if nodes and layer in _NODE_LAYERS else record.layer(layer).facts


def _times(number: int, machine: str) -> str:
    return machine if number == 1 else f"{number} nodes × ({machine})"


def _machine_name(facts: Sequence[Fact]) -> str:
    models = Counter(
        str(fact.value)
        for fact in facts
        if fact.name.startswith("accelerator ") and fact.name.endswith(" model") and fact.value
    )
    parts = [f"{number} × {model}" for model, number in models.items()]
    return ", ".join([*parts, *_processors(facts)]) or _NOT_DESCRIBED


def _processors(facts: Sequence[Fact]) -> list[str]:
    return [str(fact.value) for fact in facts if fact.name == "cpu model" and fact.value]


def framework(record: SystemRecord) -> str:
    """Return PyTorch with its version, which trains unless a run chose another framework."""
    for fact in record.matching("framework", "torch"):
        if fact.value is not None:
            return f"PyTorch {fact.value}"
    return "not known"


def _with_unit(value: Any, unit: str | None) -> str:
    if unit == "B" and isinstance(value, int | float):
        return f"{value / 2**30:.4g} GiB"
    return f"{value} {unit}" if unit else str(value)
