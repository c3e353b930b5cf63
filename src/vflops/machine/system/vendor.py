"""The interface for reading facts from a vendor's library, and its null object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from vflops.machine.probe import AbsentError, absent
from vflops.record.formats.system import Fact

# The facts that are read for the devices of every vendor, with their units.
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
    """Reads facts that torch does not report; ``device_facts`` never raises ``AbsentError``."""

    source: str

    def driver(self) -> str:
        """Return the version of the driver."""
        ...

    def cuda(self) -> str:
        """Return the newest CUDA version that the driver supports."""
        ...

    def count(self) -> int:
        """Return how many devices the driver sees, whether or not this process may use them."""
        ...

    def device_facts(self, prefix: str, device: Callable[[], int | str]) -> list[Fact]:
        """Return the facts about the device whose index or UUID ``device()`` returns.

        The names of the facts start with ``prefix``.
        """
        ...


class NoVendor:
    """The null object: all facts are absent, for the same reason."""

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
