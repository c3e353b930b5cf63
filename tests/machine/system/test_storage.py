"""The file system of the run, from fake mount tables."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from tests.support.system_fakes import named, tree, value
from vflops.machine.probe import AbsentError
from vflops.machine.system.mounts import mount_of, mounts
from vflops.machine.system.storage import storage_facts

TABLE = r"""22 1 0:20 / /proc rw - proc proc rw
27 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
28 27 0:40 / /scratch rw - lustre 10.1.1.1@o2ib:/scratch rw,flock
29 27 0:41 / /home rw - nfs4 files.example.org:/export/home rw,vers=4.2
30 29 0:42 / /home/shared\040data rw - beegfs beegfs_nodev rw
31 27 0:43 / /var/tmp rw - tmpfs tmpfs rw
32 27 259:1 / /var/tmp rw - xfs /dev/nvme0n1p1 rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/scratchy", "ext4"),
        ("/scratch", "lustre"),
        ("/scratch/project/run", "lustre"),
        ("/home/alice", "nfs4"),
        ("/home/shared data/x", "beegfs"),
        ("/var/tmp/x", "xfs"),  # mounted over the tmpfs
    ],
)
def test_the_deepest_and_last_mount_holds_a_path(tmp_path: Path, path: str, kind: str) -> None:
    table = mounts(tree(tmp_path, {"proc/self/mountinfo": TABLE}))
    assert mount_of(PurePosixPath(path), table).type == kind


def test_a_path_on_no_mount_is_absent() -> None:
    with pytest.raises(AbsentError, match="the folder is not on any known mount"):
        mount_of(PurePosixPath("/x"), [])


def root_on(root: Path, kind: str, device: str, number: str = "0:50") -> Path:
    line = f"27 1 {number} / / rw - {kind} {device} rw\n"
    return tree(root, {"proc/self/mountinfo": line})


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "gpfs", "beegfs", "fuse.sshfs"])
def test_network_file_systems_are_recognised(tmp_path: Path, kind: str) -> None:
    facts = storage_facts(Path("/"), root_on(tmp_path, kind, "server:/export/alice"))
    assert value(facts, "file system") == kind
    assert value(facts, "file system over network") is True


def test_a_local_file_system_is_recognised(tmp_path: Path) -> None:
    facts = storage_facts(Path("/"), root_on(tmp_path, "xfs", "/dev/sda2"))
    assert value(facts, "file system over network") is False
    assert value(facts, "file system device") == "/dev/sda2"


@pytest.mark.parametrize("kind", ["overlay", "virtiofs", "9p", "fuse.unheard-of"])
def test_what_hides_its_store_is_not_called_local(tmp_path: Path, kind: str) -> None:
    facts = storage_facts(Path("/"), root_on(tmp_path, kind, "none"))
    assert value(facts, "file system") == kind
    assert value(facts, "file system over network") is None


@pytest.mark.parametrize(
    "device", ["server:/export/alice", "10.1.1.1@o2ib:/scratch", "tank/home/alice", "alice@host:"]
)
def test_servers_and_people_are_not_recorded(tmp_path: Path, device: str) -> None:
    facts = storage_facts(Path("/"), root_on(tmp_path, "nfs", device))
    assert value(facts, "file system device") is None
    assert not [fact for fact in facts if device in f"{fact.value}{fact.reason}"]


def block(root: Path, number: str, disk: str, *, partition: bool = False, **files: str) -> Path:
    """Create a disk in /sys, and the file system on it or on its first partition."""
    folder = root / "sys/devices" / disk
    tree(folder, {name.replace("__", "/"): content for name, content in files.items()})
    target = folder / f"{disk}1" if partition else folder
    if partition:
        tree(target, {"partition": "1\n"})
    link = root / "sys/dev/block" / number
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    return root_on(root, "ext4", f"/dev/{target.name}", number)


def medium(root: Path) -> str | None:
    facts = storage_facts(Path("/"), root)
    medium_fact = named(facts, "file system medium")
    return str(medium_fact.value) if medium_fact.value else medium_fact.reason


def test_the_medium_of_a_partition_is_that_of_its_disk(tmp_path: Path) -> None:
    root = block(tmp_path, "8:1", "sda", partition=True, queue__rotational="1\n")
    assert medium(root) == "hard disk"


def test_a_disk_that_does_not_turn_is_an_ssd(tmp_path: Path) -> None:
    assert medium(block(tmp_path, "8:0", "sda", queue__rotational="0\n")) == "SSD"


def test_nvme_is_recognised_by_its_name(tmp_path: Path) -> None:
    assert medium(block(tmp_path, "259:1", "nvme0n1", partition=True)) == "NVMe"


def test_a_virtual_disk_does_not_show_its_medium(tmp_path: Path) -> None:
    reason = "a virtual disk does not show the medium below it"
    assert medium(block(tmp_path / "1", "254:0", "vda", queue__rotational="1\n")) == reason
    qemu = block(tmp_path / "2", "8:0", "sda", queue__rotational="1\n", device__vendor="QEMU    \n")
    assert medium(qemu) == reason


def test_tmpfs_is_memory(tmp_path: Path) -> None:
    assert medium(root_on(tmp_path, "tmpfs", "tmpfs")) == "memory"


def test_a_folder_that_does_not_exist_yet_is_on_the_file_system_of_its_parent(
    tmp_path: Path,
) -> None:
    facts = storage_facts(tmp_path / "runs/new", Path("/"))
    there = storage_facts(tmp_path, Path("/"))
    assert value(facts, "file system") == value(there, "file system") is not None
    assert value(facts, "file system size") == value(there, "file system size") > 0
