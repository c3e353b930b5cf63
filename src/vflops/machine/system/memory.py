"""Main memory: its size, the limit for this process, and its type."""

from __future__ import annotations

import re
from pathlib import Path

from vflops.machine.probe import AbsentError, command, fact, missing, text
from vflops.machine.system import cgroup
from vflops.record.formats.system import Fact, Value

_MODULES = "dmidecode --type memory"


def memory_facts(root: Path) -> list[Fact]:
    """Return facts about the main memory of this node."""
    return [
        fact("memory", "/proc/meminfo", lambda: _meminfo_b(root, "MemTotal"), unit="B"),
        fact("memory in cgroup limit", "cgroup", lambda: cgroup.memory_limit_b(root), unit="B"),
        fact("swap", "/proc/meminfo", lambda: _meminfo_b(root, "SwapTotal"), unit="B"),
        *_module_facts(root),
    ]


def available_b(root: Path) -> int:
    """Return the bytes that can be allocated without swapping."""
    sizes = _meminfo(root)
    if "MemAvailable" in sizes:
        return sizes["MemAvailable"]
    # Kernels before 3.14: the cache can be dropped.
    return _meminfo_b(root, "MemFree") + sizes.get("Buffers", 0) + sizes.get("Cached", 0)


def used_b(root: Path) -> int:
    """Return the bytes that are in use by all processes and by the kernel."""
    return max(_meminfo_b(root, "MemTotal") - available_b(root), 0)


def _meminfo_b(root: Path, key: str) -> int:
    sizes = _meminfo(root)
    return sizes[key] if key in sizes else missing(f"/proc/meminfo has no {key}")


def _meminfo(root: Path) -> dict[str, int]:
    """Return the bytes of all lines that have a size."""
    lines = [line.split() for line in text(root / "proc/meminfo").splitlines()]
    return {
        words[0].removesuffix(":"): int(words[1]) * 1024
        for words in lines
        if len(words) > 1 and words[1].isdigit()
    }


def _module_facts(root: Path) -> list[Fact]:
    """Return type, speed and number of the memory modules.

    DMI has all three but needs root; EDAC has only the type.
    """
    try:
        modules = _modules(command(*_MODULES.split()))
    except (AbsentError, OSError) as error:
        reason = f"{error} (it needs root)"
        edac = "/sys/devices/system/edac/mc"
        return [
            fact("memory type", edac, lambda: _edac_type(root, reason)),
            fact("memory speed", _MODULES, lambda: missing(reason), unit="MT/s"),
            fact("memory modules", _MODULES, lambda: missing(reason)),
        ]
    return [
        fact("memory type", _MODULES, lambda: _distinct_values(modules, "Type")),
        fact("memory speed", _MODULES, lambda: _speed_mt_s(modules), unit="MT/s"),
        fact("memory modules", _MODULES, lambda: len(modules) or missing("it lists no module")),
    ]


def _modules(listing: str) -> list[dict[str, str]]:
    """Return the properties of each module in a DMI listing; empty slots are left out."""
    blocks = [
        dict(re.findall(r"^\s+([^:\n]+): (.+)$", block, re.MULTILINE))
        for block in listing.split("\n\n")
        if "Memory Device\n" in block
    ]
    return [block for block in blocks if block.get("Size", "").split()[:1] != ["No"]]


def _distinct_values(modules: list[dict[str, str]], key: str) -> str:
    values = {module.get(key, "Unknown") for module in modules} - {"Unknown"}
    return " + ".join(sorted(values)) or missing("the firmware does not report it")


def _speed_mt_s(modules: list[dict[str, str]]) -> int:
    # Use the configured speed; older tables call it "Clock Speed", with MHz instead of MT/s.
    for key in ("Configured Memory Speed", "Configured Clock Speed"):
        speeds = [module[key].split()[0] for module in modules if key in module]
        known = [int(speed) for speed in speeds if speed.isdigit()]
        if known:
            return min(known)  # the slowest module limits its channel
    return missing("the firmware does not report it")


def _edac_type(root: Path, reason: str) -> Value:
    files = (root / "sys/devices/system/edac/mc").glob("mc*/*/dimm_mem_type")
    return " + ".join(sorted({text(file) for file in files})) or missing(reason)
