"""The type of the file system of a folder, and whether it has a cache of its own."""

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
    """Return the type of the file system of ``folder``: ``ext4``, ``tmpfs``, ``lustre`` …"""
    try:
        return mount_of(PurePosixPath(folder.resolve()), mounts(Path("/"))).type
    except (OSError, AbsentError):
        return "unknown"


def hidden_cache(system: str) -> str | None:
    """Return a caveat if a cache other than the page cache may serve reads, else None."""
    if system in _IN_MEMORY:
        return f"cached: {system} keeps files in main memory"
    if system in _OWN_CACHE:
        return f"cached: {system} has its own cache that cannot be bypassed"
    if system in _REMOTE or system.startswith("fuse"):
        return f"cached: the servers of this {system} file system may have had the data in memory"
    return None
