"""The caches of the processors: size of each, and how many there are."""

from __future__ import annotations

from pathlib import Path

from vflops.system.probe import Absent, text

_TYPES = {"Data": "d", "Instruction": "i", "Unified": ""}


def caches(cpus: Path, name: str) -> str:
    """``32 KiB x 64`` for ``L1d`` of a node with 64 of them."""
    sizes: dict[str, set[str]] = {}
    for index in cpus.glob("cpu[0-9]*/cache/index*"):
        if _name(index) == name:
            # CPUs that share a cache show it under the same list.
            sizes.setdefault(text(index / "size"), set()).add(text(index / "shared_cpu_list"))
    if not sizes:
        raise Absent(f"the kernel lists no {name} cache")
    return " + ".join(f"{_size(size)} x {len(lists)}" for size, lists in sorted(sizes.items()))


def _name(index: Path) -> str:
    return f"L{text(index / 'level')}{_TYPES.get(text(index / 'type'), '?')}"


def _size(kib: str) -> str:
    size = int(kib.removesuffix("K"))
    return f"{size // 1024} MiB" if size >= 1024 and size % 1024 == 0 else f"{size} KiB"
