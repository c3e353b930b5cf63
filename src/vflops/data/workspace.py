"""``DEST.partial``: where one process at a time builds a packed folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

from vflops.data.destination import (
    is_occupied,
    move_into_place,
    partial_path,
    require_replaceable,
    resolve_link,
)
from vflops.data.packed_index import (
    INDEX,
    PACKING,
    IndexDocument,
    PackingRecord,
    ShardEntry,
    hash_file,
)
from vflops.errors import FolderError, UsageError, VflopsError
from vflops.record.files.atomic import make_folder
from vflops.record.files.document import Document
from vflops.record.files.lock import locked

_PARTS = ".parts"
"""The folder of part files and of the lock; removed at the end."""


class ShardPart(Document):
    """What the index and the table need from a shard; each kind of data adds fields."""

    source_digest: str
    """A digest of everything that the shard was made from."""
    shard: ShardEntry
    digests: tuple[str, ...] = ()
    """The values digest of every sample, in hexadecimal; empty in parts of older versions."""


PartType = TypeVar("PartType", bound=ShardPart)


class Workspace:
    """``DEST.partial`` while a packed folder is built in it."""

    def __init__(self, destination: Path, packing: PackingRecord) -> None:
        self.destination = resolve_link(destination)
        self.packing = packing
        self.path = partial_path(self.destination)

        if self.destination.resolve() == Path(packing.source).resolve():
            raise UsageError(
                f"{destination} is the folder to pack, which packing does not change",
                hint=f"name another destination, for example {destination}-packed",
            )

    @contextmanager
    def locked(self) -> Iterator[Self]:
        """Create or reopen the folder; raise ``UsageError`` if it is in use or holds other data."""
        require_replaceable(self.destination)
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            self._check_partial()
        make_folder(self.path / _PARTS)
        with locked(self.path / _PARTS / "lock", self.path):
            for stale in self.path.glob(".*.tmp"):
                stale.unlink(missing_ok=True)  # left by a process that was killed
            self.packing.write(self.path / PACKING)
            yield self

    def _check_partial(self) -> None:
        hint = f"remove {self.path}, or choose another destination"
        if not (self.path / PACKING).is_file():
            if (self.path / _PARTS).is_dir():
                return  # killed before its first file was written
            raise UsageError(f"{self.path} exists and was not created by vflops", hint=hint)
        previous = PackingRecord.read(self.path / PACKING)
        if (previous.source, previous.settings) != (self.packing.source, self.packing.settings):
            raise UsageError(
                f"{self.path} holds a packing of {previous.source} with {previous.settings}, "
                f"not of {self.packing.source} with {self.packing.settings}",
                hint=hint,
            )

    def add_part(self, part: ShardPart) -> None:
        """Write the part file of a finished shard, so that a resumed packing keeps the shard."""
        part.write(self._part_file(part.shard.file))

    def finished_part(
        self, part_type: type[PartType], shard: str, source_digest: str
    ) -> PartType | None:
        """Return the part of a shard that is complete and from the same source, or None."""
        path = self.path / shard
        try:
            part = part_type.read(self._part_file(shard))
            same = part.source_digest == source_digest and path.stat().st_size == part.shard.bytes
            same = same and len(part.digests) == part.shard.samples
            return part if same and hash_file(path) == part.shard.sha256 else None
        except (VflopsError, OSError):
            return None  # missing or damaged: the shard is written again

    def _part_file(self, shard: str) -> Path:
        return self.path / _PARTS / f"{shard}.json"

    def require_same_packing(self, samples: str, identity: Callable[[], str]) -> None:
        """Raise ``UsageError`` unless the destination holds exactly this packing of ``samples``."""
        if (self.destination / PACKING).is_file():
            try:
                same = PackingRecord.read(self.destination / PACKING).identity == identity()
            except FolderError:
                same = False
            if same:
                self.remove_parts()
                return
            holds = (
                f"holds other {samples} or was packed with other settings, "
                "or its source has changed"
            )
        elif self.destination.is_dir():
            holds = "is a folder that holds something else"
        else:
            holds = "is a file"
        raise UsageError(
            f"{self.destination} {holds}", hint="remove it, or choose another destination"
        )

    def finished_elsewhere(self) -> bool:
        """Whether another process finished the destination before this one had the lock."""
        finished = is_occupied(self.destination)
        if finished:
            self.discard()
        return finished

    def finish(self, index: IndexDocument, identity: str) -> None:
        """Write the index, delete shards that it does not name, and rename the folder."""
        index.write(self.path / INDEX)
        self.packing.model_copy(update={"identity": identity}).write(self.path / PACKING)
        self._delete_other_shards({file.file for file in index.files()})
        move_into_place(self.path, self.destination)
        self.remove_parts()

    def _delete_other_shards(self, index_files: Collection[str]) -> None:
        for path in self.path.glob("*.bin"):
            if path.name not in index_files:
                path.unlink()  # empty, or from a time when the source had more files

    def discard(self) -> None:
        """Delete the folder with everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def remove_parts(self) -> None:
        """Delete the part files; if killed before this, the next run deletes them."""
        shutil.rmtree(self.destination / _PARTS, ignore_errors=True)
