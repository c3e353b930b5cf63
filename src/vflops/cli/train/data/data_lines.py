"""Output that the data commands share: lists of faults, and the destination."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vflops.data.packed_folder import PackedFolder

from vflops.text import printable

_MAX_LINES = 20
"""The maximum number of faults shown per kind; --json has all of them."""


def print_lines(lines: list[str]) -> None:
    """Print the first lines, and the number of the others."""
    for line in lines[:_MAX_LINES]:
        print(f"  {printable(line)}")
    if len(lines) > _MAX_LINES:
        print(f"  … and {len(lines) - _MAX_LINES:,} more")


def default_destination(source: Path, ending: str) -> Path:
    """Return a folder next to the source, e.g. ``imagenet-packed-256`` for ``imagenet``."""
    folder = source.resolve() if source.name in ("", "..") else source
    return folder.with_name(f"{folder.name}-packed-{ending}")


def print_destination(folder: Path, needed: int) -> None:
    """Print where data is packed to, and the space needed and free there."""
    from vflops.cli.terminal.console import say, shell_path
    from vflops.data.destination import free_bytes
    from vflops.units import quantity

    required, free = (quantity(size, "B", digits=2) for size in (needed, free_bytes(folder)))
    say(f"packing into {shell_path(folder)}: needs about {required} in total, {free} are free")


def shards_text(shards: int, size: int) -> str:
    """Return ``3 shards, 1.2 GB``."""
    from vflops.units import count, quantity

    return f"{count(shards, 'shard')}, {quantity(size, 'B')}"


def print_hashes(packed: PackedFolder[Any]) -> None:
    """Print the fingerprint, and the content hash of each split."""
    print(f"fingerprint  {packed.fingerprint}")
    for name, sha256 in packed.contents.items():
        print(f"content hash of {name}  {sha256}")
