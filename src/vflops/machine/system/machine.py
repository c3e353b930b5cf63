"""The vendor and the model of the machine, from DMI."""

from __future__ import annotations

from pathlib import Path

from vflops.machine.probe import AbsentError, fact, text
from vflops.record.formats.system import Fact


def machine_facts(root: Path) -> list[Fact]:
    """Return the vendor and the model of the node; serial numbers are never read."""
    dmi = "/sys/class/dmi/id"
    folder = root / "sys/class/dmi/id"
    return [
        fact("machine vendor", f"{dmi}/sys_vendor", lambda: _dmi(folder, "sys_vendor")),
        fact("machine model", f"{dmi}/product_name", lambda: _dmi(folder, "product_name")),
    ]


def _dmi(folder: Path, name: str) -> str:
    if not folder.is_dir():
        raise AbsentError("the firmware provides no DMI table")
    return text(folder / name)
