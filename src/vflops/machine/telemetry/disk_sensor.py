"""Bytes to and from storage: of the device under the run's folder, and of the run itself."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from vflops.machine.probe import AbsentError, reason_of, text
from vflops.machine.system.mounts import Mount, mount_of, mounts
from vflops.machine.telemetry.process_tree import ProcessTree
from vflops.record.formats.telemetry import Absent, Part, Series

_STATS = "/proc/diskstats"
_IO = "/proc/<pid>/io of the launcher and all it started"
_SECTOR_B = 512  # in this file always, whatever the disk's own are


class DeviceSensor:
    """Counters of the block device that holds the folder; absent where a network or memory does."""

    def __init__(self, folder: Path, root: Path = Path("/")) -> None:
        self.absent: list[Absent] = []
        self._root = root
        try:
            mount = mount_of(PurePosixPath(_existing(folder)), mounts(root))
            self._name = self._device(mount)
            self.read()
        except Exception as error:
            reason = reason_of(error, "/proc/self/mountinfo")
            self.absent.append(Absent(what="disk", reason=reason))

    def series(self) -> list[Series]:
        """Bytes read and written, by anyone."""
        if self.absent:
            return []
        source = f"{_STATS} {self._name}"
        return [
            _counter(f"disk.{word}", f"{self._name}, bytes {word}", source, "node")
            for word in ("read", "written")
        ]

    def read(self) -> list[float | None]:
        """The two counters."""
        for fields in self._rows():
            if fields[2] == self._name:
                return [_SECTOR_B * int(fields[5]), _SECTOR_B * int(fields[9])]
        raise AbsentError(f"{_STATS} no longer lists {self._name}")

    def _rows(self) -> list[list[str]]:
        return [line.split() for line in text(self._root / "proc/diskstats").splitlines()]

    def _device(self, mount: Mount) -> str:
        """The device's name by its number; by name for those file systems with their own number."""
        node = PurePosixPath(mount.device)
        name = node.name if node.is_relative_to("/dev") else None
        for fields in self._rows():
            if ":".join(fields[:2]) == mount.device_number or fields[2] == name:
                return fields[2]
        raise AbsentError(f"a {mount.type} file system shows no disk of its own")


class RunDiskSensor:
    """Counters of what the run's own processes read from storage and wrote to it.

    The kernel adds a child's to its parent's when the parent waits for it, so the sum over those
    that live keeps what the others did. What the page cache answered is not in it.
    """

    def __init__(self, pid: int, root: Path = Path("/")) -> None:
        self.absent: list[Absent] = []
        self._proc = root / "proc"
        self._tree = ProcessTree(pid, self._proc)
        try:
            self.read()
        except Exception as error:
            self.absent.append(Absent(what="disk.run", reason=reason_of(error, "/proc/<pid>/io")))

    def series(self) -> list[Series]:
        """Bytes read and written by the run."""
        if self.absent:
            return []
        return [
            _counter(f"disk.run_{word}", f"storage, bytes {word} by the run", _IO, "run")
            for word in ("read", "written")
        ]

    def read(self) -> list[float | None]:
        """The two counters; ``AbsentError`` where no process of the run can be read."""
        found = [self._bytes(process.pid) for process in self._tree.processes()]
        known = [pair for pair in found if pair is not None]
        if not known:
            raise AbsentError("the kernel does not tell the bytes of the run's processes")
        return [sum(read for read, _ in known), sum(written for _, written in known)]

    def _bytes(self, pid: int) -> tuple[int, int] | None:
        try:
            lines = text(self._proc / str(pid) / "io").splitlines()
        except OSError:  # it ended meanwhile, or belongs to somebody else
            return None
        said = {name: int(value) for name, _, value in (line.partition(":") for line in lines)}
        return said["read_bytes"], said["write_bytes"]


def _counter(id: str, title: str, source: str, part: Part) -> Series:
    return Series(id=id, title=title, unit="B", source=source, kind="counter", part=part)


def _existing(folder: Path) -> Path:
    path = folder.resolve()
    return next(place for place in (path, *path.parents) if place.exists())
