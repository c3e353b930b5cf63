"""What kind of file system a folder is on, and which cache of it nobody can pass by."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from vflops.machine.probe import AbsentError
from vflops.machine.system.mounts import mount_of, mounts

_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_OWN_CACHE = frozenset({"zfs"})
_REMOTE = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "lustre", "beegfs", "gpfs", "ceph", "glusterfs", "afs"}
)


def file_system(folder: Path) -> str:
    """The type of the file system that ``folder`` is on: ``ext4``, ``tmpfs``, ``lustre`` …"""
    try:
        return mount_of(PurePosixPath(folder.resolve()), mounts(Path("/"))).type
    except (OSError, AbsentError):
        return "unknown"


def hidden_cache(system: str) -> str | None:
    """What may answer instead of the device although the page cache is empty."""
    if system in _IN_MEMORY:
        return f"cached: {system} keeps files in main memory"
    if system in _OWN_CACHE:
        return f"cached: {system} has a cache of its own that cannot be passed by"
    if system in _REMOTE or system.startswith("fuse"):
        return f"cached: the servers of this {system} file system may have had the data in memory"
    return None
