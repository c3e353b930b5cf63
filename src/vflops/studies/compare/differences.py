"""Differences between sides other than figures: systems, settings, versions, comparability."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from vflops.record.formats.system import LAYERS
from vflops.studies.compare.comparison import Differing
from vflops.studies.compare.side import Facts, ReadRun

_MOST_NAMED = 3


def differing(layer: str, sides: Sequence[Mapping[str, str]]) -> tuple[Differing, ...]:
    """Return every name whose value differs between sides, in the order of the first side."""
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
            {name: value for (of, name), value in side.items() if of == layer} for side in sides
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


def settings(sides: Sequence[Sequence[ReadRun]]) -> tuple[Differing, ...]:
    """Return every setting that differs, with all its values on each side.

    A workload that a side does not have is one row, not one row per setting.
    """
    sections = [
        {f"workloads.{name}": "" for run in side for name in run.record.settings.workloads}
        for side in sides
    ]
    alone = {workload.name for workload in differing("settings", sections)}
    return differing("settings", [_values(side, alone) for side in sides])


def _values(runs: Sequence[ReadRun], alone: Collection[str]) -> dict[str, str]:
    """Return the settings of one side; those of the workloads ``alone`` are only counted."""
    values: dict[str, dict[str, None]] = {}
    counts: dict[str, int] = {}
    for run in runs:
        for name, value in run.settings.items():
            section = ".".join(name.split(".")[:2])
            if section in alone:
                counts[section] = counts.get(section, 0) + (run is runs[0])
            else:
                values.setdefault(name, {})[value] = None
    joined = {name: ", ".join(of_name) for name, of_name in values.items()}
    return {**joined, **{name: f"{count} settings" for name, count in counts.items()}}


def incomparable(names: Sequence[str], runs: Sequence[ReadRun]) -> Iterator[str]:
    """Yield why figures of the sides are not comparable."""
    workloads = [run.record.workload for run in runs]
    if len(set(workloads)) > 1:
        yield f"the workloads differ: {_by_side(names, workloads)}"
    for run in runs:
        if run.system is None:
            yield f"{run.id} has no description of its system, so its differences are unknown"
    fingerprints = [{name: text[:12] for name, text in run.data.items()} for run in runs]
    for what, sides in (
        ("the data differs, by fingerprint", fingerprints),
        ("operations are counted by different rules", [run.rules for run in runs]),
        ("a sample takes different work, so FLOPS do not compare", [run.work for run in runs]),
        ("the goals differ, so VFLOPS do not compare", [run.goals for run in runs]),
        ("one trained longer, which improves its quality", [run.lengths for run in runs]),
    ):
        for workload in dict.fromkeys(name for side in sides for name in side):
            having = [
                (name, side[workload])
                for name, side in zip(names, sides, strict=True)
                if workload in side
            ]
            if len({value for _, value in having}) > 1:
                yield f"{workload}: {what}: {_by_side(*zip(*having, strict=True))}"


def unlike(name: str, runs: Sequence[ReadRun]) -> Iterator[str]:
    """Yield why the runs of one side are not repeats of each other."""
    first = runs[0]
    for run in runs[1:]:
        others = differing("settings", [first.measurement_settings, run.measurement_settings])
        facts = [
            {f"{layer}, {fact}": v for (layer, fact), v in r.facts.items()} for r in (first, run)
        ]
        others += differing("system", facts)
        others += differing("data", [first.data, run.data])
        if others:
            named = ", ".join(other.name for other in others[:_MOST_NAMED])
            more = len(others) - _MOST_NAMED
            rest = f" and {more} more" if more > 0 else ""
            yield f"side {name}: {run.id} is not a repeat of {first.id}: {named}{rest} differ"


def _by_side(names: Sequence[str], values: Sequence[str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))
