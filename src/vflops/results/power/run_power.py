"""The power of a run: which parts of the machine were measured, by what, and for how long."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from vflops.record.files.document import Data
from vflops.record.formats.telemetry import Part, Series, Telemetry
from vflops.results.power.energy import Energy, Gap, Recorded, joined

Measured = Literal["accelerators", "processors", "node"]

NODE_MUST_COVER = 0.9
"""A node's own log stands for the whole only where it covers this share of the span."""

_PARTS: dict[Measured, Part] = {
    "accelerators": "accelerator",
    "processors": "processor",
    "node": "node",
}
# How sensors name themselves, and their things, where they are absent.
_SENSORS: dict[Measured, str] = {"accelerators": "NVIDIA", "processors": "processor", "node": "-"}
_THINGS: dict[Measured, str] = {"accelerators": "gpu", "processors": "package", "node": "-"}


class PartPower(Data):
    """Energy and power of one part of the machine, or why they were not measured."""

    part: Measured
    energy_j: float | None
    """Of the covered time."""
    power_w: float | None
    """Mean over the covered time."""
    covered: float
    """Share of the span that the readings cover; of several sources the least."""
    sources: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()
    reason: str | None = None
    """Why there is no energy."""


class PowerSummary(Data):
    """Energy and power of the machine over a span, and what they include."""

    includes: tuple[Measured, ...]
    energy_j: float | None
    power_w: float | None
    covered: float
    sources: tuple[str, ...]
    gaps: tuple[Gap, ...]
    reason: str | None
    """Why nothing was measured."""
    parts: tuple[PartPower, ...]
    """Every part, those not measured or not included too."""


def power_summary(
    telemetry: Telemetry, start_s: float, end_s: float, imported: Sequence[Telemetry] = ()
) -> PowerSummary:
    """The power of one node from ``start_s`` to ``end_s`` by the clock of ``telemetry``."""
    logs = [log.on_clock_of(telemetry) for log in imported]
    return host_power([telemetry], start_s, end_s, logs)


def host_power(
    sampled: Sequence[Telemetry], start_s: float, end_s: float, imported: Sequence[Telemetry] = ()
) -> PowerSummary:
    """The power of one machine that several jobs sampled: each sensor counts once.

    All telemetry is by one clock. A log of the whole node wins over the sum of its parts; several
    logs are its several feeds.
    """
    if not sampled:
        raise ValueError("sampled is empty: expected the telemetry of one job or more")
    parts = tuple(_part_power(part, sampled, imported, start_s, end_s) for part in _PARTS)
    known = [part for part in parts if part.energy_j is not None]
    whole = [part for part in known if part.part == "node" and part.covered >= NODE_MUST_COVER]
    return _total(whole or [part for part in known if part.part != "node"], parts)


def over_nodes(summaries: Sequence[PowerSummary]) -> PowerSummary:
    """The sum over the nodes of a run; not measured where they do not include the same."""
    if not summaries:
        raise ValueError("summaries is empty: expected one a node")
    includes = {summary.includes for summary in summaries}
    parts = tuple(part for summary in summaries for part in summary.parts)
    if len(includes) > 1:
        shown = "; ".join(sorted(", ".join(each) or "nothing" for each in includes))
        return _nothing(f"the nodes do not measure the same: {shown}", parts)
    (included,) = includes
    return _total([part for part in parts if part.part in included], parts)


def _total(counted: Sequence[PartPower], parts: tuple[PartPower, ...]) -> PowerSummary:
    if not counted:
        said = dict.fromkeys(f"{part.part}: {part.reason}" for part in parts if part.reason)
        return _nothing("; ".join(said) or "no part was measured", parts)
    return PowerSummary(
        includes=tuple(dict.fromkeys(part.part for part in counted)),
        energy_j=math.fsum(part.energy_j or 0.0 for part in counted),
        power_w=math.fsum(part.power_w or 0.0 for part in counted),
        covered=min(part.covered for part in counted),
        sources=tuple(dict.fromkeys(source for part in counted for source in part.sources)),
        gaps=tuple(gap for part in counted for gap in part.gaps),
        reason=None,
        parts=parts,
    )


def _nothing(reason: str, parts: tuple[PartPower, ...]) -> PowerSummary:
    return PowerSummary(
        includes=(),
        energy_j=None,
        power_w=None,
        covered=0.0,
        sources=(),
        gaps=(),
        reason=reason,
        parts=parts,
    )


def _part_power(
    part: Measured,
    sampled: Sequence[Telemetry],
    imported: Sequence[Telemetry],
    start_s: float,
    end_s: float,
) -> PartPower:
    meters = [_meters(sampled, _PARTS[part]), *(_meters([log], _PARTS[part]) for log in imported)]
    found = [_best(recorded, start_s, end_s) for each in meters for recorded in each.values()]
    if not found:
        return PartPower(
            part=part, energy_j=None, power_w=None, covered=0.0, reason=_why(part, sampled[0])
        )
    blind = [one.series.id for one in found if one.energy_j is None]
    blind += [thing for telemetry in sampled for thing in _without_meter(telemetry, part)]
    dead = [one.series.id for one in found if _is_dead(one)]
    reasons = [f"no reading of {', '.join(blind)} in the span"] if blind else []
    reasons += [f"{', '.join(dead)} read 0 all the time: no working sensor"] if dead else []
    unknown = bool(blind or dead)
    return PartPower(
        part=part,
        # Seven of eight accelerators are not the accelerators.
        energy_j=None if unknown else math.fsum(one.covered_energy_j for one in found),
        power_w=None if unknown else math.fsum(one.mean_power_w or 0.0 for one in found),
        covered=min(one.covered for one in found),
        sources=tuple(dict.fromkeys(one.series.source for one in found)),
        gaps=tuple(gap for one in found for gap in one.gaps),
        reason="; ".join(reasons) or None,
    )


def _is_dead(energy: Energy) -> bool:
    """Whether it says that a whole device took nothing, which none that runs does.

    Some processors have a counter of their memory that stays at 0 beside one that counts.
    """
    whole = energy.series.id.rpartition(".")[2] in ("energy", "power")
    return whole and energy.energy_j is not None and energy.covered_energy_j <= 0


def meter(series: Series) -> str | None:
    """What of a machine a series tells the energy of; None where it tells none.

    ``gpu0.energy`` and ``gpu0.power`` are one's; the same name by two jobs of a machine is one.
    """
    thing, _, quantity = series.id.rpartition(".")
    thing = series.device or thing
    if (series.kind, series.unit) == ("counter", "J"):
        # memory_energy of a package is beside its energy, not another reading of it.
        return f"{thing} {quantity.removesuffix('energy')}"
    if (series.kind, series.unit) == ("gauge", "W"):
        return f"{thing} {quantity.removesuffix('power')}"
    return None


def _meters(sampled: Sequence[Telemetry], part: Part) -> dict[str, list[tuple[Telemetry, Series]]]:
    """Whatever was read of each thing that has an energy."""
    found: dict[str, list[tuple[Telemetry, Series]]] = {}
    for telemetry in sampled:
        for series in telemetry.series(part):
            name = meter(series)
            if name is not None:
                found.setdefault(name, []).append((telemetry, series))
    return found


def _best(recorded: Recorded, start_s: float, end_s: float) -> Energy:
    """The kind of reading that covers most; where both do, the counter, which misses no peak.

    One that is stuck at 0 stands back.
    """
    kinds = {series.kind for _, series in recorded}
    found = [
        joined([each for each in recorded if each[1].kind == kind], start_s, end_s)
        for kind in kinds
    ]
    return max(
        found, key=lambda one: (not _is_dead(one), one.covered, one.series.kind == "counter")
    )


def _without_meter(telemetry: Telemetry, part: Measured) -> list[str]:
    """Things of this part that are in the machine and have neither energy nor power."""
    series = telemetry.series(_PARTS[part])
    metered = {each.id.partition(".")[0] for each in series if meter(each) is not None}
    absent = (one.what.partition(".") for one in telemetry.header.absent)
    things = {thing for thing, _, quantity in absent if quantity in ("", "energy", "power")}
    return sorted(thing for thing in things - metered if thing.startswith(_THINGS[part]))


def _why(part: Measured, telemetry: Telemetry) -> str:
    """What the record itself says of the sensors that are missing."""
    if part == "node":
        return "no log of the node or its supply was imported"
    wanted = (_SENSORS[part], _THINGS[part])
    reasons = [one.reason for one in telemetry.header.absent if one.what.startswith(wanted)]
    return reasons[0] if reasons else "no sensor was looked for"
