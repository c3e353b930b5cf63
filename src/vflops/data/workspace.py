"""Where a packed folder is made: aside, by one process at a time, then renamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Self, TypeVar

from vflops.data.packed import INDEX, PACKING, PackedDocument, Packing, StoredFile, hash_file
from vflops.errors import FolderError, UsageError, VflopsError
from vflops.record.files import atomic
from vflops.record.files.document import Document
from vflops.record.files.lock import locked

_PARTS = ".parts"
"""Holds what is known of finished shards and the lock, until all is done."""


class AnyPart(Document):
    """What is known of a finished shard while the others are made; each kind adds its own."""

    source_digest: str
    """Of all that the shard was made from."""
    shard: StoredFile


PartType = TypeVar("PartType", bound=AnyPart)


class Workspace:
    """``DEST.partial``: where a packed folder is made, held by one process."""

    def __init__(self, destination: Path, packing: Packing) -> None:
        self.destination = real_place(destination)
        self.packing = packing
        self.path = partial_of(self.destination)

    @contextmanager
    def locked(self) -> Iterator[Self]:
        """Make or go on with the folder; another packing's, or one in use, is refused."""
        refuse_fixed(self.destination)
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            self._check_ours()
        atomic.make_folder(self.path / _PARTS)
        with self._lock():
            for stale in self.path.glob(".*.tmp"):
                stale.unlink(missing_ok=True)  # of a process that was killed
            self.packing.write(self.path / PACKING)
            yield self

    def _check_ours(self) -> None:
        hint = f"remove {self.path}, or choose another destination"
        if not (self.path / PACKING).is_file():
            if (self.path / _PARTS).is_dir():
                return  # killed before its first file was written
            raise UsageError(f"{self.path} exists and is no packing of ours", hint=hint)
        found = Packing.read(self.path / PACKING)
        if (found.source, found.settings) != (self.packing.source, self.packing.settings):
            raise UsageError(
                f"{self.path} holds a packing of {found.source} with {found.settings}, "
                f"not of {self.packing.source} with {self.packing.settings}",
                hint=hint,
            )

    def _lock(self) -> AbstractContextManager[None]:
        return locked(self.path / _PARTS / "lock", self.path)

    def part_file(self, shard: str) -> Path:
        """Where what is known of a finished shard is kept."""
        return self.path / _PARTS / f"{shard}.json"

    def kept(self, part_type: type[PartType], shard: str, source_digest: str) -> PartType | None:
        """What is known of a shard that is there already, whole and from the same source."""
        path = self.path / shard
        try:
            part = part_type.read(self.part_file(shard))
            same = part.source_digest == source_digest and path.stat().st_size == part.shard.bytes
            return part if same and hash_file(path) == part.shard.sha256 else None
        except (VflopsError, OSError):
            return None  # not there, or damaged: made again

    def refuse_another(self, what: str, identity: Callable[[], str]) -> None:
        """An error unless the destination holds this very packing, of ``what``, and is whole."""
        place = self.destination
        if (place / PACKING).is_file():
            try:
                same = Packing.read(place / PACKING).identity == identity()
            except FolderError:
                same = False
            if same:
                self.tidy()
                return
            holds = f"holds a packing of other {what} or settings, or its source has changed"
        else:
            holds = "is a folder that holds something else" if place.is_dir() else "is a file"
        raise UsageError(f"{place} {holds}", hint="remove it, or choose another destination")

    def finish(self, index: PackedDocument, identity: str) -> None:
        """Write the index, drop the shards that it does not name, and rename the folder."""
        index.write(self.path / INDEX)
        self.packing.model_copy(update={"identity": identity}).write(self.path / PACKING)
        self._drop_others({file.file for file in index.files()})
        try:
            self.path.replace(self.destination)
        except OSError as error:
            raise atomic.cannot_write(self.destination, error) from error
        atomic.sync_folder(self.destination.parent)
        self.tidy()

    def _drop_others(self, named: Collection[str]) -> None:
        for path in self.path.glob("*.bin"):
            if path.name not in named:
                path.unlink()  # empty, or of a longer list of files before some were removed

    def tidy(self) -> None:
        """Drop what only the making needed; a kill just before leaves it to the next start."""
        shutil.rmtree(self.destination / _PARTS, ignore_errors=True)


def real_place(destination: Path) -> Path:
    """Where ``destination`` leads to, if it is a link: a folder cannot be renamed over a link."""
    unnamed = destination.name in ("", "..")
    return destination.resolve() if unnamed or destination.is_symlink() else destination


def partial_of(destination: Path) -> Path:
    """Where a folder is made until it is whole: beside its place, on the same disk."""
    return destination.parent / f"{destination.name}.partial"


def refuse_fixed(destination: Path) -> None:
    """An error where no folder can take the place of ``destination`` by a rename."""
    if not destination.is_dir():
        return
    what = "a mount point" if _is_mount(destination) else None
    if destination.resolve() == Path.cwd():
        what = "the folder that you are in"
    if what is not None:
        raise UsageError(
            f"{destination} is {what}, which no other folder can take the place of",
            hint=f"name a folder inside it: {destination / 'packed'}",
        )


def _is_mount(folder: Path) -> bool:
    if os.path.ismount(folder):
        return True
    try:  # a folder of the same disk that is mounted here too: its numbers do not show it
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    octal = str(folder.resolve()).replace("\\", r"\134").replace(" ", r"\040")
    return any(line.split(" ", 5)[4:5] == [octal] for line in table.splitlines())


def occupied(destination: Path) -> bool:
    """Whether ``destination`` exists and is not an empty folder."""
    if not destination.is_dir():
        return destination.exists()
    return any(destination.iterdir())


def refuse_occupied(destination: Path) -> None:
    """An error where ``destination`` exists and is not an empty folder."""
    if occupied(destination):
        raise UsageError(
            f"{destination} exists and is not empty", hint="remove it, or choose another place"
        )


def free_bytes(place: Path) -> int:
    """The room on the disk where ``place`` will be made: that of the folder that it is in."""
    parent = next(path for path in place.resolve().parents if path.exists())
    try:
        found = os.statvfs(parent)
    except OSError as error:
        raise atomic.cannot_write(place, error) from error
    return found.f_bavail * found.f_frsize
