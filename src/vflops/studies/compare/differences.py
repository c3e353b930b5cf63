"""What differs between sides besides their figures: systems, settings, versions, comparability."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from vflops.record.formats.system import LAYERS
from vflops.studies.compare.comparison import Differing
from vflops.studies.compare.side import Facts, ReadRun


def differing(layer: str, sides: Sequence[Mapping[str, str]]) -> tuple[Differing, ...]:
    """Every name whose value is not the same on all sides, in the order of the first."""
    names = dict.fromkeys(name for side in sides for name in side)
    rows = [(name, tuple(side.get(name) for side in sides)) for name in names]
    return tuple(
        Differing(layer=layer, name=name, values=values)
        for name, values in rows
        if len(set(values)) > 1
    )


def system(sides: Sequence[Facts]) -> tuple[tuple[Differing, ...], tuple[str, ...]]:
    """What differs layer by layer, and the layers in which nothing does."""
    found: list[Differing] = []
    equal = []
    for layer in LAYERS:
        facts = [
            {name: value for (of, name), value in side.items() if of == layer} for side in sides
        ]
        own = differing(layer, facts)
        found += own
        if not own and all(facts):  # of a system that is not described nothing is known to be equal
            equal.append(layer)
    return tuple(found), tuple(equal)


def versions(sides: Sequence[Mapping[str, str | None]]) -> tuple[Differing, ...]:
    """Of vflops and Python, as the runs themselves noted them."""
    noted = [{name: text or "unknown" for name, text in side.items()} for side in sides]
    return differing("versions", noted)


def settings(sides: Sequence[Sequence[ReadRun]]) -> tuple[Differing, ...]:
    """Every setting that is not the same, with all its values on a side.

    A workload that a side does not have is one row, not one a setting.
    """
    sections = [
        {f"workloads.{name}": "" for run in side for name in run.record.settings.workloads}
        for side in sides
    ]
    alone = {each.name for each in differing("settings", sections)}
    return differing("settings", [_values(side, alone) for side in sides])


def _values(runs: Sequence[ReadRun], alone: Collection[str]) -> dict[str, str]:
    """The settings of one side; those of the workloads ``alone`` are only counted."""
    found: dict[str, dict[str, None]] = {}
    counts: dict[str, int] = {}
    for run in runs:
        for name, value in run.settings.items():
            section = ".".join(name.split(".")[:2])
            if section in alone:
                counts[section] = counts.get(section, 0) + (run is runs[0])
            else:
                found.setdefault(name, {})[value] = None
    one = {name: ", ".join(values) for name, values in found.items()}
    return {**one, **{name: f"{many} settings" for name, many in counts.items()}}


def incomparable(names: Sequence[str], runs: Sequence[ReadRun]) -> Iterator[str]:
    """Why figures of the sides are figures of different things."""
    workloads = [run.record.workload for run in runs]
    if len(set(workloads)) > 1:
        yield f"not the same workload: {_each(names, workloads)}"
    for run in runs:
        if run.system is None:
            yield f"{run.id}: its system is not described, so what differs there is not known"
    fingerprints = [{name: text[:12] for name, text in run.data.items()} for run in runs]
    for what, of in (
        ("the data is not the same, by fingerprint", fingerprints),
        ("operations are counted by other rules", [run.rules for run in runs]),
        ("a sample takes other work, so FLOPS are of other networks", [r.work for r in runs]),
        ("the goal is another, so VFLOPS are of other goals", [run.goals for run in runs]),
        ("one trained longer, so quality is bought with time", [run.lengths for run in runs]),
    ):
        for workload in dict.fromkeys(name for side in of for name in side):
            held = [(name, each) for name, each in zip(names, of, strict=True) if workload in each]
            values = [each[workload] for _, each in held]
            if len(set(values)) > 1:
                yield f"{workload}: {what}: {_each([name for name, _ in held], values)}"


def unlike(name: str, runs: Sequence[ReadRun]) -> Iterator[str]:
    """Why the runs of one side do not repeat one thing."""
    first = runs[0]
    for run in runs[1:]:
        others = differing("settings", [first.own_settings, run.own_settings])
        facts = [
            {f"{layer}, {fact}": v for (layer, fact), v in r.facts.items()} for r in (first, run)
        ]
        others += differing("system", facts)
        others += differing("data", [first.data, run.data])
        if others:
            named = ", ".join(each.name for each in others[:3])
            rest = f" and {len(others) - 3} more" if len(others) > 3 else ""
            yield f"side {name}: {run.id} is no repeat of {first.id}: {named}{rest} differ"


def _each(names: Sequence[str], values: Sequence[str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))
