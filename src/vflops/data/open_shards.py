"""Shards opened for reading: mapped into memory, or read by calls where mapping is slow.

From the page cache a mapping is copied at the speed of memory: seen 8 GB/s by one thread in a
virtual machine, and 2 GB/s by calls. On network file systems it may be the other way round: there
a mapping fetches page by page.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vflops.data.packed import REPAIR, StoredFile, allow_open_files, check_size
from vflops.errors import FolderError
from vflops.machine.system.filesystem import file_system

_MAPPED = {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "ramfs", "overlay"}
"""File systems of this machine's own disks and memory."""


class OpenShards:
    """The shards of a split, opened when they are first read; safe for several threads."""

    def __init__(self, folder: Path, shards: Sequence[StoredFile]) -> None:
        self._folder = folder
        self._shards = shards
        self._mapped = is_local(folder)
        self._descriptors: dict[int, int] = {}
        self._mappings: dict[int, mmap.mmap] = {}
        self.maps: list[NDArray[np.uint8] | None] = [None] * len(shards)
        """Of shards that were mapped; ``map`` maps one."""
        self._opening = threading.Lock()
        weakref.finalize(self, _close_all, self._descriptors)

    def map(self, number: int) -> NDArray[np.uint8]:
        """All bytes of a shard, mapped into memory."""
        with self._opening:
            found = self.maps[number]
            if found is None:
                descriptor = self._open(number)
                try:
                    mapping = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
                finally:
                    os.close(descriptor)  # a mapping has its own
                found = np.frombuffer(mapping, np.uint8)
                self._mappings[number] = mapping
                self.maps[number] = found
            return found

    def read(self, number: int, place: int, out: NDArray[np.uint8]) -> None:
        """Copy from a place in a shard into all of ``out``; lets go of the GIL."""
        if not self._mapped:
            self._read(number, place, out.data)
            return
        data = self.maps[number]
        if data is None:
            data = self.map(number)
        start = place - place % mmap.PAGESIZE
        # All of it is asked for at once: page by page a cold disk would be asked for 128 kB.
        self._mappings[number].madvise(mmap.MADV_WILLNEED, start, place + out.size - start)
        out[:] = data[place : place + out.size]

    def _read(self, number: int, place: int, memory: memoryview) -> None:
        path = self._folder / self._shards[number].file
        descriptor = self._descriptors.get(number)
        if descriptor is None:
            with self._opening:
                descriptor = self._descriptors.get(number)
                if descriptor is None:
                    descriptor = self._descriptors[number] = self._open(number)
        while len(memory):
            try:
                count = os.preadv(descriptor, [memory], place)
            except OSError as error:
                raise FolderError(f"cannot read {path}: {error.strerror or error}") from error
            if count == 0:
                raise FolderError(f"{path} ends at {place} bytes: it was cut short", hint=REPAIR)
            memory, place = memory[count:], place + count

    def _open(self, number: int) -> int:
        shard = self._shards[number]
        allow_open_files(len(self._shards))
        check_size(self._folder, shard)  # a mapping past the end would kill the process
        try:
            return os.open(self._folder / shard.file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            path = self._folder / shard.file
            raise FolderError(f"cannot read {path}: {error.strerror or error}") from error


def is_local(folder: Path) -> bool:
    """Whether a folder is on a disk or in the memory of this machine; False where unknown."""
    return file_system(folder) in _MAPPED


def _close_all(opened: dict[int, int]) -> None:
    for descriptor in opened.values():
        os.close(descriptor)
