"""The limits that a container or a scheduler sets through cgroups, version 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from vflops.machine.probe import AbsentError, text
from vflops.machine.system.mounts import mounts

# In version 1 "unlimited" is the largest number of whole pages.
_UNLIMITED_B = 2**62


def cpu_quota(root: Path) -> float:
    """Return the number of CPUs whose time this process may use."""
    quotas = [*_v2_cpus(root), *_v1_cpus(root)]
    if not quotas:
        raise AbsentError("no cgroup sets a CPU quota")
    return min(quotas)


def memory_limit_b(root: Path) -> int:
    """Return the bytes of memory that this process may use."""
    files = [*_files(root, "", "memory.max"), *_files(root, "memory", "memory.limit_in_bytes")]
    limits = [int(limit) for limit in map(text, files) if limit != "max"]
    limits = [limit for limit in limits if limit < _UNLIMITED_B]
    if not limits:
        raise AbsentError("no cgroup sets a memory limit")
    return min(limits)


def _v2_cpus(root: Path) -> Iterator[float]:
    for file in _files(root, "", "cpu.max"):
        quota, period = text(file).split()
        if quota != "max":
            yield int(quota) / int(period)


def _v1_cpus(root: Path) -> Iterator[float]:
    for file in _files(root, "cpu", "cpu.cfs_quota_us"):
        quota = int(text(file))
        if quota > 0:
            yield quota / int(text(file.with_name("cpu.cfs_period_us")))


def _files(root: Path, controller: str, name: str) -> Iterator[Path]:
    """Yield the files ``name`` in the cgroup of this process and in its parents.

    The strictest limit counts. ``controller`` is empty for version 2, whose single tree has all
    controllers.
    """
    path = _process_cgroup(root, controller)
    if path is None:
        return
    kind = "cgroup" if controller else "cgroup2"
    for mount in mounts(root):
        if mount.type != kind or (controller and controller not in mount.options):
            continue
        # In a container the mount may be a part of the tree that does not contain the path.
        is_inside = path.is_relative_to(mount.root) and ".." not in path.parts
        relative = path.relative_to(mount.root) if is_inside else PurePosixPath()
        for folder in (relative, *relative.parents):
            file = root / mount.point.relative_to("/") / folder / name
            if file.is_file():
                yield file


def _process_cgroup(root: Path, controller: str) -> PurePosixPath | None:
    for line in text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return PurePosixPath(path)
    return None
