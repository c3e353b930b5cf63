"""The rule on compute nodes: all that trained are described, and those of a kind are equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache

from vflops.machine.system.fact_text import format_fact
from vflops.record.formats.measured_node import FOLDER, MeasuredNode
from vflops.record.formats.measurement import Measurement
from vflops.record.formats.system import LAYERS, Fact
from vflops.record.readout.contents import Contents
from vflops.record.readout.job_ceilings import few, node_kinds, trained_nodes
from vflops.results.check.locations import event_location
from vflops.results.check.rule import Outcome
from vflops.results.score.node_spread import nodes_by_kind
from vflops.units import count

MAY_DIFFER = (
    "* now",  # clocks and links change all the time
    "* free",
    "allocation*",  # the share of a node, its tasks and its number in the allocation
    "virtual interfaces",  # of containers that happen to run
    "file system device",  # the address of the server that the node uses
)
"""Patterns of the facts in which equal nodes may differ; everything else must be the same."""
NEARLY_EQUAL = ("memory", "swap")
"""Facts of which the firmware of equal nodes keeps slightly different parts."""
TOLERANCE = 0.01
"""The relative difference that is allowed in these facts."""
_LAYERS_OF_NODES = LAYERS[:6]
"""The layers that a node describes; the others describe the workload."""
_MAX_VALUES = 3
"""The largest number of unusual values of a fact that are named."""

_Name = tuple[str, str]
"""The layer and the name of a fact."""


def check_nodes(contents: Contents) -> Outcome:
    """Fail if a node trained without a description, or if nodes of one kind differ."""
    if not contents.measured_nodes:
        reason = "the run used only the machine that it was started on, or did not measure nodes"
        return Outcome("not applicable", reason)
    kinds = contents.once(node_kinds)
    for job in (*contents.training_jobs, *contents.workers):
        unknown = [name for name in trained_nodes(job) if name not in kinds]
        if unknown:
            evidence = f"job {job.record.job} trained on {few(unknown)}, which is not described"
            return Outcome("fail", evidence, event_location(job, "job"))
    if odd := _different_measurement(contents):
        return odd
    by_kind = contents.once(nodes_by_kind)
    differences = [
        (first, text) for equal in by_kind.values() for first, text in node_differences(equal)
    ]
    if differences:
        evidence = "; ".join(text for _, text in differences)
        return Outcome("fail", evidence, f"{FOLDER}/{differences[0][0]}.json")
    texts = [f"{count(len(equal), 'node')} of kind {kind}" for kind, equal in by_kind.items()]
    return Outcome("pass", f"{', '.join(texts)}: described, and equal within their kind")


def _different_measurement(contents: Contents) -> Outcome | None:
    """Return a failure if the log has a ceiling of a node that the node did not measure."""
    nodes = {node.node: node for node in contents.measured_nodes}
    for event in contents.history.events("measurement"):
        item = event.payload(Measurement)
        if item.kind is None:  # of the machine that the run was started on, or of a link
            continue
        node = nodes.get(item.node or "")
        if node is None or item not in node.full:
            name = f"{item.benchmark} {item.case} of {item.node}"
            return Outcome("fail", f"{name} is not what the node measured", event.source)
    return None


def node_differences(nodes: Sequence[MeasuredNode]) -> Iterator[tuple[str, str]]:
    """Yield the facts in which nodes of one kind differ: the first odd node, and the text.

    The most common value of a fact counts as the usual one.
    """
    values: dict[_Name, dict[str, str]] = {}
    typical: dict[_Name, float] = {}
    for node in nodes:
        for layer in _LAYERS_OF_NODES:
            for fact in node.system.layer(layer).facts:
                if not _may_differ(fact.name):
                    name = (layer, fact.name)
                    values.setdefault(name, {})[node.node] = _text(fact, typical, name)
    for (_, fact_name), by_node in values.items():
        with_text: dict[str, list[str]] = {}
        for node in nodes:
            with_text.setdefault(by_node.get(node.node, "not described"), []).append(node.node)
        usual = max(with_text, key=lambda text: len(with_text[text]))
        odd = {text: names for text, names in with_text.items() if text != usual}
        shown = [
            f"{few(names)} {'has' if len(names) == 1 else 'have'} {text}"
            for text, names in list(odd.items())[:_MAX_VALUES]
        ]
        if odd:
            more = f", {len(odd) - _MAX_VALUES} other values" if len(odd) > _MAX_VALUES else ""
            first = next(iter(odd.values()))[0]
            yield first, f"{fact_name}: {', '.join(shown)}{more}, others {usual}"


@cache
def _may_differ(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in MAY_DIFFER)


def _text(fact: Fact, typical: dict[_Name, float], name: _Name) -> str:
    """Return the value as text; the first value of a fact stands for those that nearly equal it."""
    if fact.value is None:
        return "not known"
    if fact.name in NEARLY_EQUAL and isinstance(fact.value, int | float):
        first = typical.setdefault(name, fact.value)
        if abs(fact.value - first) <= TOLERANCE * first:
            return format_fact(fact.model_copy(update={"value": first}))
    return format_fact(fact)
