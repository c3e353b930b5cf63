"""Shards opened for reading: memory-mapped, or read with ``preadv`` where mapping is slow.

From the page cache, one thread copied 8 GB/s out of a mapping in a virtual machine and 2 GB/s with
read calls. On network file systems it can be the other way round, because a mapping fetches page
by page.
"""

from __future__ import annotations

import mmap
import os
import resource
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vflops.data.packed_index import REPAIR, StoredFile, cannot_read, check_size
from vflops.errors import FolderError, UsageError
from vflops.machine.system.filesystem import file_system

_MAPPED = {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "ramfs", "overlay"}
"""File systems whose files are mapped: those on local disks or in memory."""
_SPARE_FILES = 256
"""Open files that the rest of the program needs besides the shards."""


class OpenShards:
    """The shards of a split, opened when they are first read; safe to use from several threads."""

    def __init__(self, folder: Path, shards: Sequence[StoredFile]) -> None:
        self._folder = folder
        self._shards = shards
        self.mapped = is_local(folder)
        """Whether shards are mapped rather than read."""
        self._descriptors: dict[int, int] = {}
        self._mappings: dict[int, mmap.mmap] = {}
        self.maps: list[NDArray[np.uint8] | None] = [None] * len(shards)
        """The bytes of each shard that ``map`` has mapped so far."""
        self._opening = threading.Lock()
        weakref.finalize(self, _close_all, self._descriptors)

    def map(self, number: int) -> NDArray[np.uint8]:
        """Return all bytes of a shard, mapped into memory."""
        with self._opening:
            data = self.maps[number]
            if data is None:
                descriptor = self._open(number)
                try:
                    mapping = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
                finally:
                    os.close(descriptor)  # the mapping duplicates it
                data = np.frombuffer(mapping, np.uint8)
                self._mappings[number] = mapping
                self.maps[number] = data
            return data

    def read(self, number: int, offset: int, out: NDArray[np.uint8]) -> None:
        """Fill ``out`` with the bytes of a shard from ``offset`` on; releases the GIL."""
        if not self.mapped:
            self._read(number, offset, out.data)
            return
        data = self.maps[number]
        if data is None:
            data = self.map(number)
        start = offset - offset % mmap.PAGESIZE
        # One request for the whole range: page faults would read a cold disk 128 kB at a time.
        self._mappings[number].madvise(mmap.MADV_WILLNEED, start, offset + out.size - start)
        out[:] = data[offset : offset + out.size]

    def read_ahead(self, number: int, offset: int, size: int) -> None:
        """Let the system fetch bytes that will be read soon, without waiting for them."""
        with suppress(OSError):  # not every file system can
            os.posix_fadvise(self._descriptor(number), offset, size, os.POSIX_FADV_WILLNEED)

    def _descriptor(self, number: int) -> int:
        descriptor = self._descriptors.get(number)
        if descriptor is None:
            with self._opening:
                descriptor = self._descriptors.get(number)
                if descriptor is None:
                    descriptor = self._descriptors[number] = self._open(number)
        return descriptor

    def _read(self, number: int, offset: int, memory: memoryview) -> None:
        path = self._folder / self._shards[number].file
        descriptor = self._descriptor(number)
        while len(memory):
            try:
                count = os.preadv(descriptor, [memory], offset)
            except OSError as error:
                raise cannot_read(path, error) from error
            if count == 0:
                raise FolderError(f"{path} ends at {offset} bytes: it is truncated", hint=REPAIR)
            memory, offset = memory[count:], offset + count

    def _open(self, number: int) -> int:
        shard = self._shards[number]
        allow_open_files(len(self._shards))
        check_size(self._folder, shard)  # reading a mapping past the end would kill the process
        try:
            return os.open(self._folder / shard.file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise cannot_read(self._folder / shard.file, error) from error


def is_local(folder: Path) -> bool:
    """Whether a folder is on a local disk or in memory; False if that is unknown."""
    return file_system(folder) in _MAPPED


def allow_open_files(shards: int) -> None:
    """Raise the limit on open files to fit all shards: the default is often 1,024."""
    needed = shards + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        raise UsageError(
            f"{shards} shards need {needed} open files, but this process is limited to {hard}",
            hint="raise the limit with ulimit -n, or ask the administrator of the system",
        )


def _close_all(descriptors: dict[int, int]) -> None:
    for descriptor in descriptors.values():
        os.close(descriptor)
