"""Metrics in the OpenMetrics and Prometheus text formats, written by Prometheus' client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from prometheus_client import Metric

PREFIX = "vflops_"

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Family:
    """One metric with its samples; a family without samples is not written."""

    name: str
    """The name without the prefix; it ends with the unit, if any."""
    help: str
    samples: tuple[tuple[Labels, float], ...]
    unit: str = ""
    kind: Literal["gauge", "info"] = "gauge"


def openmetrics(families: Iterable[Family]) -> str:
    """Return the families in the OpenMetrics 1.0 text format."""
    from prometheus_client.openmetrics.exposition import generate_latest

    text: bytes = generate_latest(_Metrics(families))
    return text.decode()


def prometheus(families: Iterable[Family]) -> str:
    """Return the families in the text format 0.0.4, which node exporter's collector reads."""
    from prometheus_client.exposition import generate_latest

    return generate_latest(_Metrics(families)).decode()


class _Metrics:
    """The families in the form of a registry, as the client needs them."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        from prometheus_client import Metric

        for family in self._families:
            if family.samples:
                name = PREFIX + family.name
                metric = Metric(name, family.help, family.kind, family.unit)
                suffix = "_info" if family.kind == "info" else ""
                for labels, value in family.samples:
                    metric.add_sample(name + suffix, dict(labels), value)
                yield metric
