"""Reads the mount table of this process, to find the file system of a path."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vflops.machine.probe import AbsentError, text


@dataclass(frozen=True)
class Mount:
    """One line of ``/proc/self/mountinfo``."""

    device_number: str
    """``major:minor`` of the block device, ``0:n`` without one."""
    root: PurePosixPath
    """The part of the file system that is mounted."""
    point: PurePosixPath
    """Where it is mounted."""
    type: str
    device: str
    options: tuple[str, ...]
    """Options of the file system; for a cgroup, its controllers."""


def mounts(root: Path) -> list[Mount]:
    """Return all mounts, in the order of mounting."""
    lines = text(root / "proc/self/mountinfo").splitlines()
    return [_mount(line) for line in lines if " - " in line]


def mount_of(path: PurePosixPath, table: Sequence[Mount]) -> Mount:
    """Return the mount of ``path``: the deepest, and the newest if several are at one point."""
    candidates = [mount for mount in table if path.is_relative_to(mount.point)]
    if not candidates:
        raise AbsentError("the folder is not on any known mount")
    return max(reversed(candidates), key=lambda mount: len(mount.point.parts))


def _mount(line: str) -> Mount:
    fields, _, system = line.partition(" - ")
    _, _, number, root, point, *_ = fields.split()
    # A device may be empty, so that two spaces follow each other.
    kind, device, options = [*system.split(" "), "", ""][:3]
    return Mount(
        device_number=number,
        root=PurePosixPath(_unescape(root)),
        point=PurePosixPath(_unescape(point)),
        type=kind,
        device=_unescape(device),
        options=tuple(options.split(",")),
    )


def _unescape(field: str) -> str:
    """Return the text with ``\\040`` and other escapes replaced by their characters."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), field)
