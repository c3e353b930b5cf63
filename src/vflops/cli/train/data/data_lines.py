"""Output that the data commands share: lists of faults, and the destination."""

from __future__ import annotations

from pathlib import Path

_MAX_LINES = 20
"""Faults of one kind that are shown; --json has all of them."""


def show_lines(lines: list[str]) -> None:
    """Print the first lines, and how many there are more."""
    for line in lines[:_MAX_LINES]:
        print(f"  {line}")
    if len(lines) > _MAX_LINES:
        print(f"  … and {len(lines) - _MAX_LINES:,} more")


def beside(source: Path, ending: str) -> Path:
    """Return a folder beside the source, e.g. ``imagenet-packed-256`` for ``imagenet``."""
    whole = source.resolve() if source.name in ("", "..") else source
    return whole.with_name(f"{whole.name}-packed-{ending}")


def say_space(folder: Path, needed: int) -> None:
    """Print the destination of the packing, and the space needed and free there."""
    from vflops.cli.terminal.console import say, shown
    from vflops.data.destination import free_bytes
    from vflops.units import quantity

    required, free = (quantity(size, "B", digits=2) for size in (needed, free_bytes(folder)))
    say(f"packing into {shown(folder)}: about {required} in total, {free} free there")


def shards_text(shards: int, size: int) -> str:
    """Return ``3 shards, 1.2 GB``."""
    from vflops.results.score.figure_text import count
    from vflops.units import quantity

    return f"{count(shards, 'shard')}, {quantity(size, 'B')}"
