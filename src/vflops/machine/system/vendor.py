"""What a vendor's library reports of its devices: one small class per vendor, a null object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from vflops.machine.probe import AbsentError, absent
from vflops.record.formats.system import Fact

# The facts of every vendor's devices, with their units.
FIGURES: dict[str, str | None] = {
    "model": None,
    "memory": "B",
    "memory bus width": "bit",
    "clock max": "MHz",
    "clock now": "MHz",
    "memory clock max": "MHz",
    "memory clock now": "MHz",
    "power limit": "W",
    "power limit by default": "W",
    "pcie generation max": None,
    "pcie generation now": None,
    "pcie lanes max": None,
    "pcie lanes now": None,
}


class Vendor(Protocol):
    """Reads what torch does not report; all but ``device_facts`` may raise ``AbsentError``."""

    source: str

    def driver(self) -> str:
        """Return the version of the driver."""
        ...

    def cuda(self) -> str:
        """Return the newest CUDA that the driver supports."""
        ...

    def count(self) -> int:
        """Return how many devices the driver sees, whether or not this process may use them."""
        ...

    def device_facts(self, prefix: str, device: Callable[[], int | str]) -> list[Fact]:
        """Return the facts of the device whose index or UUID ``device()`` gives.

        Their names start with ``prefix``.
        """
        ...


class NoVendor:
    """The null object: all facts are absent, for one reason."""

    def __init__(self, source: str, reason: str, figures: Mapping[str, str | None]) -> None:
        self.source = source
        self._reason = reason
        self._figures = figures

    def driver(self) -> str:
        """Raise ``AbsentError``."""
        raise AbsentError(self._reason)

    def cuda(self) -> str:
        """Raise ``AbsentError``."""
        raise AbsentError(self._reason)

    def count(self) -> int:
        """Raise ``AbsentError``."""
        raise AbsentError(self._reason)

    def device_facts(self, prefix: str, device: Callable[[], int | str]) -> list[Fact]:
        """Return all facts, each absent."""
        return [
            absent(f"{prefix} {name}", self.source, self._reason, unit=unit)
            for name, unit in self._figures.items()
        ]
