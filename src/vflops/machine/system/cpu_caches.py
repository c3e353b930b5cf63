"""The caches of the processors: sizes and numbers."""

from __future__ import annotations

from pathlib import Path

from vflops.machine.probe import text

_TYPES = {"Data": "d", "Instruction": "i", "Unified": ""}


def read_caches(cpus: Path) -> dict[str, str]:
    """Return the caches by level: ``32 KiB x 64`` for ``L1d`` of a node with 64 of them."""
    caches: dict[str, dict[str, set[str]]] = {}
    for index in cpus.glob("cpu[0-9]*/cache/index*"):
        try:
            name, size = _name(index), _format_size(text(index / "size"))
            # CPUs that share a cache have the same list.
            cpu_list = text(index / "shared_cpu_list")
        except (OSError, ValueError):
            continue  # some virtual machines lack these files
        caches.setdefault(name, {}).setdefault(size, set()).add(cpu_list)
    return {
        name: " + ".join(f"{size} x {len(lists)}" for size, lists in sorted(sizes.items()))
        for name, sizes in caches.items()
    }


def _name(index: Path) -> str:
    return f"L{text(index / 'level')}{_TYPES.get(text(index / 'type'), '?')}"


def _format_size(kib: str) -> str:
    size = int(kib.removesuffix("K"))
    return f"{size // 1024} MiB" if size >= 1024 and size % 1024 == 0 else f"{size} KiB"
