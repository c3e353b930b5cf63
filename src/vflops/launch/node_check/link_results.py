"""The ceilings of links, from the results of all rounds."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.launch.node_check.exchange import Exchange, Result
from vflops.launch.node_check.link_tasks import Backend, LinkPlan, LinkTask
from vflops.machine.ceilings.allreduce import TOLERANCE, Size, summarise
from vflops.machine.ceilings.ceiling_plan import Item
from vflops.record.formats.measured_node import MeasuredLinks
from vflops.record.formats.measurement import Measurement, Trial

_MAX_NAMED = 4
"""More nodes than this are counted instead of named."""


def links_measured(exchange: Exchange, plan: LinkPlan, names: Sequence[str]) -> MeasuredLinks:
    """Return the ceilings of all rounds, and the faults."""
    pairs: list[tuple[LinkTask, Measurement]] = []
    found: list[Measurement] = []
    faults: list[str] = []
    for number, tasks in enumerate(plan.rounds):
        measured = []
        for task in tasks:
            result = exchange.result(number, task) or Result(fault="no result")
            if result.fault:
                faults.append(f"{task.benchmark}, {_named(task, names)}: {result.fault}")
                continue
            measured.append((task, _measurement(task, result, plan.backend, names)))
        if tasks[0].benchmark == "point-to-point":
            pairs += measured
        elif measured:
            found.append(_best_group(measured, names))
    if pairs:
        found.append(_median_pair(pairs, names))
    return MeasuredLinks(nodes=tuple(names), measurements=tuple(found), faults=tuple(faults))


def _measurement(
    task: LinkTask, result: Result, backend: Backend, names: Sequence[str]
) -> Measurement:
    item = Item(task.benchmark, task.case(backend), None, weight=1.0)
    measured = summarise(
        item,
        "cpu" if backend == "gloo" else "cuda",
        [Size(size.size_bytes, list(size.times_s), size.error) for size in result.sizes],
        task.ranks,
        bus_share=task.bus_share,
        tolerance=TOLERANCE,
        out_of_time_reason="too little time; raise micro.budget_s",
    )
    return measured.model_copy(update={"node": _named(task, names)})


def _best_group(
    measured: Sequence[tuple[LinkTask, Measurement]], names: Sequence[str]
) -> Measurement:
    """Return the fastest of equal groups; ``tried`` has the best value of each."""
    fastest = max((item for _, item in measured), key=lambda item: item.value or 0.0)
    if len(measured) == 1:
        return fastest
    tried = [
        Trial(setting={"nodes": _named(task, names)}, value=item.value)
        for task, item in measured
        if item.value is not None
    ]
    return fastest.model_copy(update={"tried": tuple(tried)})


def _median_pair(
    pairs: Sequence[tuple[LinkTask, Measurement]], names: Sequence[str]
) -> Measurement:
    """Return the pair of neighbours with the median speed; ``tried`` has each pair."""
    known = [(found.value, task, found) for task, found in pairs if found.value is not None]
    if not known:
        return pairs[0][1]
    ordered = sorted(known, key=lambda pair: pair[0])
    _, _, median = ordered[(len(ordered) - 1) // 2]
    tried = [Trial(setting={"nodes": _named(task, names)}, value=value) for value, task, _ in known]
    return median.model_copy(update={"tried": tuple(tried)})


def _named(task: LinkTask, names: Sequence[str]) -> str:
    return _named_nodes([names[node] for node in task.nodes])


def _named_nodes(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _MAX_NAMED else f"{len(names)} nodes"
