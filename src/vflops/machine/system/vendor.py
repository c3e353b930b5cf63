"""What a vendor's own library says of its devices: one small class a vendor, and a null object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from vflops.machine.probe import AbsentError, absent
from vflops.record.formats.system import Fact

# What is asked of every vendor's devices, with the units.
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
    """Reads what torch does not tell; all but ``device_facts`` may raise ``AbsentError``."""

    source: str

    def driver(self) -> str:
        """Version of the driver."""
        ...

    def cuda(self) -> str:
        """The newest CUDA that the driver can run."""
        ...

    def count(self) -> int:
        """How many devices the driver sees, whether or not this process may use them."""
        ...

    def device_facts(self, prefix: str, device: Callable[[], int | str]) -> list[Fact]:
        """The figures of one, given a way to its index or UUID; names start with ``prefix``."""
        ...


class NoVendor:
    """Has none of the figures, and the reason for each."""

    def __init__(self, source: str, reason: str, figures: Mapping[str, str | None]) -> None:
        self.source = source
        self._reason = reason
        self._figures = figures

    def driver(self) -> str:
        """AbsentError."""
        raise AbsentError(self._reason)

    def cuda(self) -> str:
        """AbsentError."""
        raise AbsentError(self._reason)

    def count(self) -> int:
        """AbsentError."""
        raise AbsentError(self._reason)

    def device_facts(self, prefix: str, device: Callable[[], int | str]) -> list[Fact]:
        """All figures, each absent."""
        return [
            absent(f"{prefix} {name}", self.source, self._reason, unit=unit)
            for name, unit in self._figures.items()
        ]
