"""The power of a run: the measured parts of the machine, with their sensors and coverage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from vflops.record.files.document import Data
from vflops.record.formats.telemetry import Part, Series, Telemetry
from vflops.results.power.energy import Energy, Gap, Recorded, join_energy

Measured = Literal["accelerators", "processors", "node"]

NODE_MUST_COVER = 0.9
"""The share of a span that a power log of the whole node must cover to be used."""

_PARTS: dict[Measured, Part] = {
    "accelerators": "accelerator",
    "processors": "processor",
    "node": "node",
}
# Prefixes of the names of absent sensors and of their devices.
_SENSORS: dict[Measured, str] = {"accelerators": "NVIDIA", "processors": "processor", "node": "-"}
_DEVICES: dict[Measured, str] = {"accelerators": "gpu", "processors": "package", "node": "-"}


class PartPower(Data):
    """Energy and power of one part of the machine, or why they were not measured."""

    part: Measured
    energy_j: float | None
    """Energy over the covered time."""
    power_w: float | None
    """Mean power over the covered time."""
    covered: float
    """The share of the span that the readings cover; the minimum over several sensors."""
    sources: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()
    reason: str | None = None
    """Why the energy is not known."""


class PowerSummary(Data):
    """Energy and power of a machine over a span, and the parts that they include."""

    includes: tuple[Measured, ...]
    energy_j: float | None
    power_w: float | None
    covered: float
    sources: tuple[str, ...]
    gaps: tuple[Gap, ...]
    reason: str | None
    """Why nothing was measured."""
    parts: tuple[PartPower, ...]
    """All parts, including those not measured or not included."""


def power_summary(
    telemetry: Telemetry, start_s: float, end_s: float, imported: Sequence[Telemetry] = ()
) -> PowerSummary:
    """Return the power of one node over a span, in the time of ``telemetry``'s clock."""
    logs = [log.on_clock_of(telemetry) for log in imported]
    return host_power([telemetry], start_s, end_s, logs)


def host_power(
    sampled: Sequence[Telemetry], start_s: float, end_s: float, imported: Sequence[Telemetry] = ()
) -> PowerSummary:
    """Return the power of one machine that several jobs sampled, counting each sensor once.

    All telemetry must use the same clock. A power log of the whole node takes precedence over the
    sum of its parts. Several such logs are separate power feeds and are added.
    """
    if not sampled:
        raise ValueError("sampled is empty: expected the telemetry of one job or more")
    parts = tuple(_part_power(part, sampled, imported, start_s, end_s) for part in _PARTS)
    known = [part for part in parts if part.energy_j is not None]
    node = [part for part in known if part.part == "node" and part.covered >= NODE_MUST_COVER]
    return _total(node or [part for part in known if part.part != "node"], parts)


def sum_over_nodes(summaries: Sequence[PowerSummary]) -> PowerSummary:
    """Return the sum over nodes, or no power if they do not include the same parts."""
    if not summaries:
        raise ValueError("summaries is empty: expected one per node")
    includes = {summary.includes for summary in summaries}
    parts = tuple(part for summary in summaries for part in summary.parts)
    if len(includes) > 1:
        texts = "; ".join(sorted(", ".join(parts) or "nothing" for parts in includes))
        return _not_measured(f"the nodes do not measure the same: {texts}", parts)
    (included,) = includes
    return _total([part for part in parts if part.part in included], parts)


def _total(counted: Sequence[PartPower], parts: tuple[PartPower, ...]) -> PowerSummary:
    if not counted:
        reasons = dict.fromkeys(f"{part.part}: {part.reason}" for part in parts if part.reason)
        return _not_measured("; ".join(reasons) or "no part was measured", parts)
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


def _not_measured(reason: str, parts: tuple[PartPower, ...]) -> PowerSummary:
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
    energies = [
        _best(recorded, start_s, end_s) for by_name in meters for recorded in by_name.values()
    ]
    if not energies:
        return PartPower(
            part=part,
            energy_j=None,
            power_w=None,
            covered=0.0,
            reason=_missing_reason(part, sampled[0]),
        )
    unread = [energy.series.id for energy in energies if energy.energy_j is None]
    unread += [device for telemetry in sampled for device in _without_meter(telemetry, part)]
    dead = [energy.series.id for energy in energies if _is_dead(energy)]
    reasons = [f"no reading of {', '.join(unread)} in the span"] if unread else []
    reasons += [f"{', '.join(dead)} read 0 all the time: no working sensor"] if dead else []
    unknown = bool(unread or dead)
    return PartPower(
        part=part,
        # The sum over seven of eight accelerators would not be the power of the accelerators.
        energy_j=None if unknown else math.fsum(e.covered_energy_j for e in energies),
        power_w=None if unknown else math.fsum(e.mean_power_w or 0.0 for e in energies),
        covered=min(energy.covered for energy in energies),
        sources=tuple(dict.fromkeys(energy.series.source for energy in energies)),
        gaps=tuple(gap for energy in energies for gap in energy.gaps),
        reason="; ".join(reasons) or None,
    )


def _is_dead(energy: Energy) -> bool:
    """Whether the meter of a whole device always reads 0, which no running device does.

    Memory counters are exempt: on some processors they stay at 0 although the main one works.
    """
    is_whole_device = energy.series.id.rpartition(".")[2] in ("energy", "power")
    return is_whole_device and energy.energy_j is not None and energy.covered_energy_j <= 0


def meter_name(series: Series) -> str | None:
    """Return the name of the meter of a series; None if it measures neither energy nor power.

    ``gpu0.energy`` and ``gpu0.power`` have the same meter, and so do equal names of two jobs.
    """
    device, _, quantity = series.id.rpartition(".")
    device = series.device or device
    if (series.kind, series.unit) == ("counter", "J"):
        # The memory_energy of a package adds to its energy; it is not another reading of it.
        return f"{device} {quantity.removesuffix('energy')}"
    if (series.kind, series.unit) == ("gauge", "W"):
        return f"{device} {quantity.removesuffix('power')}"
    return None


def _meters(sampled: Sequence[Telemetry], part: Part) -> dict[str, list[tuple[Telemetry, Series]]]:
    """Return the recorded series by name of the meter."""
    meters: dict[str, list[tuple[Telemetry, Series]]] = {}
    for telemetry in sampled:
        for series in telemetry.series(part):
            name = meter_name(series)
            if name is not None:
                meters.setdefault(name, []).append((telemetry, series))
    return meters


def _best(recorded: Recorded, start_s: float, end_s: float) -> Energy:
    """Return the energy from the kind of reading with the best coverage.

    With equal coverage a counter is preferred, because it misses no peak. A meter that always
    reads 0 is the last choice.
    """
    kinds = {series.kind for _, series in recorded}
    energies = [
        join_energy([pair for pair in recorded if pair[1].kind == kind], start_s, end_s)
        for kind in kinds
    ]
    return max(energies, key=lambda e: (not _is_dead(e), e.covered, e.series.kind == "counter"))


def _without_meter(telemetry: Telemetry, part: Measured) -> list[str]:
    """Return the devices of this part that have no meter."""
    series = telemetry.series(_PARTS[part])
    metered = {s.id.partition(".")[0] for s in series if meter_name(s) is not None}
    absent = (sensor.what.partition(".") for sensor in telemetry.header.absent)
    devices = {device for device, _, quantity in absent if quantity in ("", "energy", "power")}
    return sorted(device for device in devices - metered if device.startswith(_DEVICES[part]))


def _missing_reason(part: Measured, telemetry: Telemetry) -> str:
    """Return the recorded reason why a part has no sensors."""
    if part == "node":
        return "no log of the node or its supply was imported"
    prefixes = (_SENSORS[part], _DEVICES[part])
    absent = telemetry.header.absent
    reasons = [sensor.reason for sensor in absent if sensor.what.startswith(prefixes)]
    return reasons[0] if reasons else "no sensor was looked for"
