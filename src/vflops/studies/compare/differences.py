"""Differences between sides in their systems, settings and versions, and comparability."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from vflops.record.formats.batch_ops import BatchOps
from vflops.record.formats.system import LAYERS
from vflops.studies.compare.comparison import Differing
from vflops.studies.compare.run_view import Facts, RunView

_MAX_NAMED = 3
_OF_THE_GOAL = "VFLOPS and time to quality are not comparable"
_OF_THE_WORK = "FLOPS and VFLOPS are not comparable"
_OTHER_RULES = "operations are counted by different rules"
_OTHER_WORK = "the operations per sample differ"
_SHARE_OF_ONCE_PER_BATCH = 1e-4
"""The largest share of operations that occur once per batch, not once per sample."""


def differing(layer: str, sides: Sequence[Mapping[str, str]]) -> tuple[Differing, ...]:
    """Return the names whose values differ between sides, in the order of the first side."""
    names = dict.fromkeys(name for side in sides for name in side)
    rows = [(name, tuple(side.get(name) for side in sides)) for name in names]
    return tuple(
        Differing(layer=layer, name=name, values=values)
        for name, values in rows
        if len(set(values)) > 1
    )


def system(sides: Sequence[Facts]) -> tuple[tuple[Differing, ...], tuple[str, ...]]:
    """Return what differs layer by layer, and the layers in which nothing does."""
    differences: list[Differing] = []
    equal = []
    for layer in LAYERS:
        facts = [
            {name: value for (fact_layer, name), value in side.items() if fact_layer == layer}
            for side in sides
        ]
        in_layer = differing(layer, facts)
        differences += in_layer
        if not in_layer and all(facts):  # a system without a description is not known to be equal
            equal.append(layer)
    return tuple(differences), tuple(equal)


def versions(sides: Sequence[Mapping[str, str | None]]) -> tuple[Differing, ...]:
    """Return the differing versions of vflops and Python, as the runs recorded them."""
    recorded = [{name: text or "unknown" for name, text in side.items()} for side in sides]
    return differing("versions", recorded)


def settings(sides: Sequence[Sequence[RunView]]) -> tuple[Differing, ...]:
    """Return every setting that differs, with all its values on each side.

    A workload that a side does not have takes one row, instead of one row per setting.
    """
    sections = [
        {f"workloads.{name}": "" for run in side for name in run.record.settings.workloads}
        for side in sides
    ]
    one_sided = {workload.name for workload in differing("settings", sections)}
    return differing("settings", [_values(side, one_sided) for side in sides])


def _values(runs: Sequence[RunView], one_sided: Collection[str]) -> dict[str, str]:
    """Return the settings of one side; those of ``one_sided`` workloads are only counted."""
    values: dict[str, dict[str, None]] = {}
    counts: dict[str, int] = {}
    for run in runs:
        for name, value in run.settings.items():
            section = ".".join(name.split(".")[:2])
            if section in one_sided:
                counts[section] = counts.get(section, 0) + (run is runs[0])
            else:
                values.setdefault(name, {})[value] = None
    joined = {name: ", ".join(of_name) for name, of_name in values.items()}
    return {**joined, **{name: f"{count} settings" for name, count in counts.items()}}


def comparability_warnings(names: Sequence[str], runs: Sequence[RunView]) -> Iterator[str]:
    """Yield the reasons why figures of the sides are not comparable."""
    workloads = [run.record.workload for run in runs]
    if len(set(workloads)) > 1:
        yield f"the workloads differ: {_by_side(names, workloads)}"
    for run in runs:
        if run.system is None:
            yield f"{run.id} has no description of its system, so its differences are unknown"
    fingerprints = [{name: text[:12] for name, text in run.data.items()} for run in runs]
    for what, sides in (
        ("the data differs, by fingerprint", fingerprints),
        (f"{_OTHER_RULES}, so {_OF_THE_WORK}", [run.rules for run in runs]),
        (f"{_OTHER_WORK}, so {_OF_THE_WORK}", _ops_per_sample(runs)),
        (f"the goals differ, so {_OF_THE_GOAL}", [run.goals for run in runs]),
        (f"the tasks differ, so {_OF_THE_GOAL}", [run.tasks for run in runs]),
        ("one trained longer, which improves its quality", [run.planned_epochs for run in runs]),
    ):
        for workload in dict.fromkeys(name for side in sides for name in side):
            values = [
                (name, side[workload])
                for name, side in zip(names, sides, strict=True)
                if workload in side
            ]
            if len({value for _, value in values}) > 1:
                yield f"{workload}: {what}: {_by_side(*zip(*values, strict=True))}"


def goal_difference(workload: str, runs: Sequence[RunView]) -> str | None:
    """Return why figures that depend on the goal are not comparable; None if they are."""
    if len({run.goals.get(workload) for run in runs}) > 1:
        return "the goals differ"
    if len({run.tasks.get(workload) for run in runs}) > 1:
        return "the tasks differ"
    return None


def text_difference(workload: str, runs: Sequence[RunView]) -> str | None:
    """Return why qualities that follow from the loss are not comparable; None if they are."""
    texts = {run.validation_text[workload] for run in runs if workload in run.validation_text}
    return "the validation data differs" if len(texts) > 1 else None


def work_difference(workload: str, runs: Sequence[RunView]) -> str | None:
    """Return why figures that count operations are not comparable; None if they are."""
    for reason, of_runs in (
        (_OTHER_RULES, [run.rules for run in runs]),
        (_OTHER_WORK, _ops_per_sample(runs)),
    ):
        if len({counted[workload] for counted in of_runs if workload in counted}) > 1:
            return reason
    return None


def _ops_per_sample(runs: Sequence[RunView]) -> list[dict[str, str]]:
    """Return the operations per sample of each run, by workload; equal work has the same text."""
    distinct: dict[str, list[BatchOps]] = {}
    texts = []
    for run in runs:
        of_run = {}
        for workload, ops in run.work.items():
            known = distinct.setdefault(workload, [])
            first = next((other for other in known if _is_same_work(ops, other)), ops)
            if first is ops:
                known.append(ops)
            whole, rest = divmod(first.total, first.batch)
            of_run[workload] = f"{whole:,}" + (f" {rest}/{first.batch}" if rest else "")
        texts.append(of_run)
    return texts


def _is_same_work(ops: BatchOps, other: BatchOps) -> bool:
    """Whether two batches have the same operations per sample.

    Some operations occur once per batch, so that a sample's share depends on the batch.
    """
    if ops.batch == other.batch:
        return ops.total == other.total
    shares = ops.total / ops.batch, other.total / other.batch
    return math.isclose(*shares, rel_tol=_SHARE_OF_ONCE_PER_BATCH)


def repeat_differences(name: str, runs: Sequence[RunView]) -> Iterator[str]:
    """Yield the reasons why the runs of one side are not repeats of each other."""
    first = runs[0]
    for run in runs[1:]:
        others = differing("settings", [first.measurement_settings, run.measurement_settings])
        facts = [
            {f"{layer}, {fact}": v for (layer, fact), v in r.facts.items()} for r in (first, run)
        ]
        others += differing("system", facts)
        others += differing("data", [first.data, run.data])
        if others:
            named = ", ".join(other.name for other in others[:_MAX_NAMED])
            more = len(others) - _MAX_NAMED
            rest = f" and {more} more" if more > 0 else ""
            yield f"side {name}: {run.id} is not a repeat of {first.id}: {named}{rest} differ"


def _by_side(names: Sequence[str], values: Sequence[str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))
