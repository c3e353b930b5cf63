"""``system.json``: a description of the system as facts in nine layers."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, model_validator

from vflops.errors import format_value, unknown_name
from vflops.record.files.document import Data, Document

_MAX_NUMBER = 1e40

Value = str | int | float | bool

LAYERS = (
    "hardware",
    "operating system",
    "communication libraries",
    "accelerator libraries",
    "framework",
    "programming model",
    "workload implementation",
    "hyper-parameters",
    "problem domain",
)


class Fact(Data):
    """One fact about the system, or the reason why it could not be read."""

    name: str
    """Unique within its layer: ``cpu model``, ``accelerator 0 power limit`` …"""
    value: Value | None
    unit: str | None = None
    source: str
    """Where the fact was looked up: ``/proc/cpuinfo``, ``NVML``, ``torch`` …"""
    reason: str | None = None
    """Why there is no value."""

    @model_validator(mode="after")
    def _read_or_absent(self) -> Self:
        if (self.value is None) == (self.reason is None):
            raise ValueError("a fact has either a value or the reason why it has none")
        if isinstance(self.value, int | float) and abs(self.value) > _MAX_NUMBER:
            raise ValueError(
                f"the fact {format_value(self.name)} is {format_value(self.value)}, expected a "
                f"number between -{_MAX_NUMBER:.0e} and {_MAX_NUMBER:.0e}"
            )
        return self


@lru_cache(maxsize=1 << 13)
def _first_equal(fact: Fact, value_type: type) -> Fact:
    """Return the first of equal facts; the type of the value tells 1, 1.0 and True apart."""
    return fact


SharedFact = Annotated[Fact, AfterValidator(lambda fact: _first_equal(fact, type(fact.value)))]
"""A fact that is one object if several are equal: thousands of nodes have nearly the same facts."""


class Layer(Data):
    """One of the nine layers."""

    name: str
    facts: tuple[SharedFact, ...]

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        counts = Counter(fact.name for fact in self.facts)
        duplicates = sorted(name for name, count in counts.items() if count > 1)
        if duplicates:
            raise ValueError(f"layer {self.name!r} has two facts named {duplicates[0]!r}")
        return self


class SystemRecord(Document):
    """The whole file: the nine layers of facts, and when they were gathered."""

    schema_name: ClassVar[str] = "vflops.system"

    gathered_utc: str
    layers: tuple[Layer, ...]
    node: str | None = None
    """The compute node that is described, the first that was measured; None for the machine that
    the run was started on."""
    submitted_from: str | None = None
    """The machine that submitted the run to a scheduler, in words."""

    @model_validator(mode="after")
    def _all_nine_layers(self) -> Self:
        names = tuple(layer.name for layer in self.layers)
        if names != LAYERS:
            raise ValueError(f"expected the layers {', '.join(LAYERS)}, got {', '.join(names)}")
        return self

    @property
    def machine(self) -> tuple[str, ...]:
        """The facts that identify the kind of machine: processor, cores and accelerators."""
        names = ("cpu model", "usable cpus", "accelerator * model")
        facts = [fact for name in names for fact in self.matching("hardware", name)]
        return tuple(f"{fact.name} {fact.value}" for fact in facts)

    @property
    def kind(self) -> str:
        """Accelerators, CPUs, memory and processor in words; the same for equal machines."""
        facts = {fact.name: fact.value for fact in self.layer("hardware").facts}
        memory = facts.get("memory")
        words = [f"{count} × {model}" for model, count in self.accelerator_counts.items()]
        words += [f"{facts['usable cpus']} CPUs"] if facts.get("usable cpus") else []
        if isinstance(memory, int):  # two digits: firmware keeps different parts on equal machines
            words.append(f"{float(f'{memory / 2**30:.2g}'):g} GiB")
        words += [str(facts["cpu model"])] if facts.get("cpu model") else []
        return ", ".join(words) or "unknown"

    @property
    def accelerator_counts(self) -> dict[str, int]:
        """The number of accelerators by model; empty if none is usable or no model is known."""
        if any(fact.value == 0 for fact in self.matching("hardware", "accelerators")):
            return {}  # the driver may list devices that torch cannot use
        facts = self.matching("hardware", "accelerator * model")
        return dict(Counter(str(fact.value) for fact in facts if fact.value is not None))

    def layer(self, name: str) -> Layer:
        """Return the layer called ``name``."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise unknown_name("layer", name, LAYERS)

    def fact(self, layer: str, name: str) -> Fact:
        """Return the fact called ``name`` in a layer."""
        facts = self.layer(layer).facts
        for fact in facts:
            if fact.name == name:
                return fact
        where = f" in layer {layer!r}"
        raise unknown_name("fact", name, (fact.name for fact in facts), where=where)

    def matching(self, layer: str, pattern: str) -> tuple[Fact, ...]:
        """Return the facts that match ``pattern``, such as ``accelerator * model``."""
        return tuple(fact for fact in self.layer(layer).facts if fnmatchcase(fact.name, pattern))
