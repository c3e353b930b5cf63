"""The file system of the run: its type, its size, and whether it is on a network."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath

from vflops.machine.probe import AbsentError, fact, text
from vflops.machine.system.mounts import Mount, mount_of, mounts
from vflops.record.formats.system import Fact

_MOUNTS = "/proc/self/mountinfo"
_NETWORK = {
    *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "afs"),
    *("glusterfs", "orangefs", "pvfs2", "panfs", "wekafs", "dvs", "mfs", "ocfs2", "gfs2"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.daos", "fuse.dfuse"),
    *("fuse.s3fs", "fuse.juicefs", "fuse.gcsfuse", "fuse.rclone", "fuse.mfs", "fuse.beegfs"),
}
_HIDDEN = {
    "overlay": "an overlay does not show the file system below it",
    "9p": "the file system belongs to the virtual machine's host",
    "virtiofs": "the file system belongs to the virtual machine's host",
}
_VIRTUAL_DISKS = {"qemu", "vmware", "msft", "google", "virtual"}


def storage_facts(folder: Path, root: Path) -> list[Fact]:
    """Return facts about the file system of ``folder``, which need not exist yet."""
    existing = _nearest_existing(folder)

    def mount() -> Mount:
        return mount_of(PurePosixPath(existing), mounts(root))

    return [
        fact("file system", _MOUNTS, lambda: mount().type),
        fact("file system device", _MOUNTS, lambda: _device(mount())),
        fact("file system over network", _MOUNTS, lambda: _over_network(mount())),
        fact("file system medium", "/sys/dev/block", lambda: _medium(mount(), root)),
        fact("file system size", "statvfs", lambda: shutil.disk_usage(existing).total, unit="B"),
        fact("file system free", "statvfs", lambda: shutil.disk_usage(existing).free, unit="B"),
    ]


def _nearest_existing(folder: Path) -> Path:
    path = folder.resolve()
    return next(existing for existing in (path, *path.parents) if existing.exists())


def _device(mount: Mount) -> str:
    # Names such as server:/export/user contain hosts and people, and results are published.
    if not mount.device.startswith("/dev/") and set(mount.device) & set("/:@"):
        raise AbsentError("its name contains a server or a path, which are not recorded")
    return mount.device


def _over_network(mount: Mount) -> bool:
    if mount.type in _NETWORK:
        return True
    if mount.type in _HIDDEN:
        raise AbsentError(_HIDDEN[mount.type])
    if mount.type.startswith("fuse"):
        raise AbsentError(f"it is not known for {mount.type}")
    return False


def _medium(mount: Mount, root: Path) -> str:
    if mount.type in ("tmpfs", "ramfs"):
        return "memory"
    disk = _disk(mount, root)
    if _is_virtual(disk):
        raise AbsentError("a virtual disk does not show the medium below it")
    if disk.name.startswith("nvme"):
        return "NVMe"
    return "hard disk" if text(disk / "queue/rotational") == "1" else "SSD"


def _disk(mount: Mount, root: Path) -> Path:
    """Return the folder in ``/sys`` of the disk that the file system is on."""
    block = (root / "sys/dev/block" / mount.device_number).resolve()
    if not block.exists():
        # btrfs and others have a number that is not that of the device: use its name.
        block = (root / "sys/class/block" / PurePosixPath(mount.device).name).resolve()
    if not mount.device.startswith("/dev/") or not block.exists():
        raise AbsentError(f"a {mount.type} file system does not show its disk")
    return block.parent if (block / "partition").exists() else block


def _is_virtual(disk: Path) -> bool:
    vendor = disk / "device/vendor"
    vendor_name = text(vendor).lower() if vendor.is_file() else ""
    return disk.name.startswith(("vd", "xvd")) or vendor_name in _VIRTUAL_DISKS
