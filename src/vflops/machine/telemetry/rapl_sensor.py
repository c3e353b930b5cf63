"""Energy of processors and their memory, from the powercap counters of the kernel (RAPL)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vflops.machine.probe import AbsentError, text
from vflops.machine.telemetry.sensor import Channel, Channels
from vflops.record.formats.telemetry import Absent, Series

_FOLDER = "/sys/class/powercap"
_HINT = "only root may read it by default: make it readable (chmod a+r), or run as root"


def rapl_sensor(root: Path = Path("/")) -> Channels:
    """Return the energy counters of each package and of its memory.

    The counters of cores and uncore are part of the package; ``psys`` and the memory-mapped copies
    overlap with it. All of these are omitted, so that no energy is counted twice.
    """
    channels = list(_zones(root))
    missing = [] if channels else [Absent(what="processor energy", reason=_absence_reason(root))]
    return Channels(channels, missing)


def _zones(root: Path) -> Iterator[Channel]:
    folder = root / _FOLDER.lstrip("/")
    for zone in sorted(folder.glob("intel-rapl:*"), key=_numbers):
        package, *subzone = _numbers(zone)
        name = _name(zone)
        if not subzone and name.startswith("package"):
            yield _channel(zone, f"package{package}.energy", f"processor package {package}")
        elif subzone and name == "dram":
            yield _channel(zone, f"package{package}.memory_energy", f"memory of package {package}")


def _channel(zone: Path, id: str, title: str) -> Channel:
    series = Series(
        id=id,
        title=f"energy of {title}",
        unit="J",
        source=f"{_FOLDER}/{zone.name}/energy_uj",
        kind="counter",
        part="processor",
        wraps_at=_range_j(zone),
    )

    def energy_j() -> float:
        try:
            return int(text(zone / "energy_uj")) / 1e6
        except PermissionError as error:
            raise AbsentError(f"{series.source} cannot be read: {_HINT}") from error

    return Channel(series, energy_j)


def _range_j(zone: Path) -> float | None:
    try:
        return int(text(zone / "max_energy_range_uj")) / 1e6 or None
    except (OSError, ValueError):
        return None


def _name(zone: Path) -> str:
    try:
        return text(zone / "name")
    except OSError:
        return ""


def _numbers(zone: Path) -> list[int]:
    """Return ``[0, 2]`` for ``intel-rapl:0:2``."""
    return [int(part) for part in zone.name.split(":")[1:] if part.isdigit()]


def _absence_reason(root: Path) -> str:
    if not (root / _FOLDER.lstrip("/")).is_dir():
        return f"{_FOLDER} does not exist: a virtual machine, or a kernel without powercap"
    return f"{_FOLDER} shows no package: the processor has no accessible energy counter"
