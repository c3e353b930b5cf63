"""Destination folders: built in ``DEST.partial`` next to them, then renamed in one step."""

from __future__ import annotations

import os
from pathlib import Path

from vflops.errors import UsageError
from vflops.record.files import atomic


def resolve_link(destination: Path) -> Path:
    """Return the folder behind ``destination`` if it is a link, which a rename cannot replace."""
    unnamed = destination.name in ("", "..")
    return destination.resolve() if unnamed or destination.is_symlink() else destination


def partial_path(destination: Path) -> Path:
    """Return the folder in which ``destination`` is built: a sibling, so on the same disk."""
    return destination.parent / f"{destination.name}.partial"


def move_into_place(partial: Path, destination: Path) -> None:
    """Rename a finished folder to its destination and sync the parent folder."""
    try:
        partial.replace(destination)
    except OSError as error:
        raise atomic.cannot_write(destination, error) from error
    atomic.sync_folder(destination.parent)


def is_occupied(destination: Path) -> bool:
    """Whether ``destination`` exists and is not an empty folder."""
    if not destination.is_dir():
        return destination.exists()
    return any(destination.iterdir())


def require_unoccupied(destination: Path) -> None:
    """Raise ``UsageError`` if ``destination`` exists and is not an empty folder."""
    if is_occupied(destination):
        raise UsageError(
            f"{destination} exists and is not empty", hint="remove it, or choose another folder"
        )


def require_replaceable(destination: Path) -> None:
    """Raise ``UsageError`` if ``destination`` cannot be replaced by renaming another folder."""
    if not destination.is_dir():
        return
    what = "a mount point" if _is_mount(destination) else None
    if destination.resolve() == Path.cwd():
        what = "the current folder"
    if what is not None:
        raise UsageError(
            f"{destination} is {what}, which cannot be replaced by another folder",
            hint=f"name a folder inside it: {destination / 'packed'}",
        )


def _is_mount(folder: Path) -> bool:
    if os.path.ismount(folder):
        return True
    try:  # device and inode numbers do not reveal a bind mount from the same disk
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    escaped = str(folder.resolve()).replace("\\", r"\134").replace(" ", r"\040")
    return any(line.split(" ", 5)[4:5] == [escaped] for line in table.splitlines())


def free_bytes(folder: Path) -> int:
    """Return the free space on the disk where ``folder`` exists or will be created."""
    parent = next(path for path in folder.resolve().parents if path.exists())
    try:
        status = os.statvfs(parent)
    except OSError as error:
        raise atomic.cannot_write(folder, error) from error
    return status.f_bavail * status.f_frsize
