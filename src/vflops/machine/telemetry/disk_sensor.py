"""Bytes read from and written to storage, by the run folder's device and by the run."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from vflops.machine.probe import AbsentError, reason_of, text
from vflops.machine.system.mounts import Mount, mount_of, mounts
from vflops.machine.telemetry.process_tree import ProcessTree
from vflops.record.formats.telemetry import Absent, Part, Series

_STATS = "/proc/diskstats"
_IO = "/proc/<pid>/io of the launcher and all it started"
_SECTOR_B = 512  # always the unit of this file, whatever the disk uses


class DeviceSensor:
    """Reads the counters of the folder's block device; absent for network and memory file
    systems."""

    def __init__(self, folder: Path, root: Path = Path("/")) -> None:
        self.absent: list[Absent] = []
        self._root = root
        try:
            mount = mount_of(PurePosixPath(_nearest_existing(folder)), mounts(root))
            self._name = self._device(mount)
            self.read()
        except Exception as error:
            reason = reason_of(error, "/proc/self/mountinfo")
            self.absent.append(Absent(what="disk", reason=reason))

    def series(self) -> list[Series]:
        """Return the series: bytes read and written by all processes."""
        if self.absent:
            return []
        source = f"{_STATS} {self._name}"
        return [
            _counter(f"disk.{direction}", f"{self._name}, bytes {direction}", source, "node")
            for direction in ("read", "written")
        ]

    def read(self) -> list[float | None]:
        """Return the two counters."""
        for fields in self._rows():
            if fields[2] == self._name:
                return [_SECTOR_B * int(fields[5]), _SECTOR_B * int(fields[9])]
        raise AbsentError(f"{_STATS} no longer lists {self._name}")

    def _rows(self) -> list[list[str]]:
        return [line.split() for line in text(self._root / "proc/diskstats").splitlines()]

    def _device(self, mount: Mount) -> str:
        """Return the name of the device, found by its number or else by its name."""
        node = PurePosixPath(mount.device)
        name = node.name if node.is_relative_to("/dev") else None
        for fields in self._rows():
            if ":".join(fields[:2]) == mount.device_number or fields[2] == name:
                return fields[2]
        raise AbsentError(f"a {mount.type} file system does not show its disk")


class RunDiskSensor:
    """Reads the bytes that the processes of the run read from and wrote to storage.

    The kernel adds a child's counters to its parent's when the parent waits for it, so the sum over
    living processes includes those that ended. Reads from the page cache are not included.
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
        """Return the series: bytes read and written by the run."""
        if self.absent:
            return []
        return [
            _counter(f"disk.run_{direction}", f"storage, bytes {direction} by the run", _IO, "run")
            for direction in ("read", "written")
        ]

    def read(self) -> list[float | None]:
        """Return the two counters; raise ``AbsentError`` if no process of the run can be read."""
        pairs = [self._bytes(process.pid) for process in self._tree.processes()]
        known = [pair for pair in pairs if pair is not None]
        if not known:
            raise AbsentError("the kernel does not report the bytes of the run's processes")
        return [sum(read for read, _ in known), sum(written for _, written in known)]

    def _bytes(self, pid: int) -> tuple[int, int] | None:
        try:
            lines = text(self._proc / str(pid) / "io").splitlines()
        except OSError:  # the process ended in the meantime, or belongs to another user
            return None
        counters = {name: int(value) for name, _, value in (line.partition(":") for line in lines)}
        return counters["read_bytes"], counters["write_bytes"]


def _counter(id: str, title: str, source: str, part: Part) -> Series:
    return Series(id=id, title=title, unit="B", source=source, kind="counter", part=part)


def _nearest_existing(folder: Path) -> Path:
    path = folder.resolve()
    return next(folder for folder in (path, *path.parents) if folder.exists())
