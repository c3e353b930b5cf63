"""What the data commands show alike: faults by the line, and where packed data goes."""

from __future__ import annotations

from pathlib import Path

_MOST_LINES = 20
"""Of one kind of fault; --json has them all."""


def show_lines(lines: list[str]) -> None:
    """The first of many faults."""
    for line in lines[:_MOST_LINES]:
        print(f"  {line}")
    if len(lines) > _MOST_LINES:
        print(f"  … and {len(lines) - _MOST_LINES:,} more")


def beside(source: Path, ending: str) -> Path:
    """Return a folder beside the source: ``imagenet`` goes to ``imagenet-packed-256``."""
    whole = source.resolve() if source.name in ("", "..") else source
    return whole.with_name(f"{whole.name}-packed-{ending}")


def say_room(place: Path, needed: int) -> None:
    """Where the packing goes, what it needs and what is free there."""
    from vflops.cli.terminal.console import say, shown
    from vflops.data.destination import free_bytes
    from vflops.units import quantity

    room, free = (quantity(size, "B", digits=2) for size in (needed, free_bytes(place)))
    say(f"packing into {shown(place)}: about {room} in all, {free} free there")


def shards_in_words(shards: int, size: int) -> str:
    """Return ``3 shards, 1.2 GB``."""
    from vflops.results.score.figure_text import count
    from vflops.units import quantity

    return f"{count(shards, 'shard')}, {quantity(size, 'B')}"
