"""Name, framework and main facts of a system, as shown in a ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vflops.publish.ranking.entry import Result
from vflops.record.formats.system import SystemRecord

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


def system_name(record: SystemRecord, results: Sequence[Result]) -> str:
    """Return a short name for a system: its accelerators with their number, and its processor."""
    parts = [f"{number} × {model}" for model, number in record.accelerator_counts.items()]
    if not parts:  # the machine in system.json may not be the one that trained
        parts = list(dict.fromkeys(result.device for result in results if result.accelerators))
    processors = record.matching("hardware", "cpu model")
    parts += [str(fact.value) for fact in processors if fact.value is not None]
    return ", ".join(parts) or "not described"


def system_facts(record: SystemRecord) -> list[dict[str, str]]:
    """Return the names and values of those main facts that are known."""
    return [
        {"name": fact.name, "value": _with_unit(fact.value, fact.unit)}
        for layer, names in _FACTS.items()
        for fact in sorted(
            (fact for fact in record.layer(layer).facts if fact.name in names),
            key=lambda fact: names.index(fact.name),
        )
        if fact.value is not None
    ]


def framework(record: SystemRecord) -> str:
    """Return the framework and its version."""
    for fact in record.matching("framework", "torch"):
        if fact.value is not None:
            return f"PyTorch {fact.value}"
    return "not known"


def _with_unit(value: Any, unit: str | None) -> str:
    if unit == "B" and isinstance(value, int | float):
        return f"{value / 2**30:.4g} GiB"
    return f"{value} {unit}" if unit else str(value)
