"""Metrics as text: OpenMetrics, and Prometheus' older form that its node exporter collects."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

PREFIX = "vflops_"

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Family:
    """One metric and its samples, each with labels of its own."""

    name: str
    """Without the prefix; its unit, where it has one, is its end."""
    help: str
    samples: tuple[tuple[Labels, float], ...]
    unit: str = ""
    kind: Literal["gauge", "info"] = "gauge"


def openmetrics(families: Iterable[Family]) -> str:
    """The text of OpenMetrics 1.0, its end marked."""
    return "".join(f"{line}\n" for each in families for line in _lines(each)) + "# EOF\n"


def prometheus(families: Iterable[Family]) -> str:
    """The text format 0.0.4; what it does not know, units and ``info``, is left out."""
    lines: list[str] = []
    for each in families:
        if each.samples:
            name = _sample_name(each)
            lines += [f"# HELP {name} {_plain(each.help)}", f"# TYPE {name} gauge"]
            lines += _samples(each)
    return "".join(f"{line}\n" for line in lines)


def _lines(family: Family) -> Iterator[str]:
    if family.samples:
        name = PREFIX + family.name
        yield f"# TYPE {name} {family.kind}"
        if family.unit:
            yield f"# UNIT {name} {family.unit}"
        yield f"# HELP {name} {_escaped(family.help)}"
        yield from _samples(family)


def _samples(family: Family) -> Iterator[str]:
    name = _sample_name(family)
    for labels, value in family.samples:
        told = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        yield f"{name}{{{told}}} {_number(value)}"


def _sample_name(family: Family) -> str:
    return PREFIX + family.name + ("_info" if family.kind == "info" else "")


def _number(value: float) -> str:
    if not math.isfinite(value):  # a loss that diverged is worth knowing
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _escaped(text: str) -> str:
    return _plain(text).replace('"', r"\"")


def _plain(text: str) -> str:
    """The help of the older form, in which a quotation mark is one like any sign."""
    return text.replace("\\", r"\\").replace("\n", r"\n")
