"""A temporary file for storage benchmarks, which bypasses the page cache if possible."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import random
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

PAGE = 4096
"""Alignment of direct reads and writes, and the size of a random read."""
TILE = 4 << 20
"""Number of random bytes, which the file repeats."""
MAX_BLOCK = 16 << 20
"""Maximum number of bytes that one call writes."""
_PREFIX = ".vflops-storage-"


class ScratchFile:
    """A temporary file of random bytes; the context manager removes it on exit."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._path = folder / f"{_PREFIX}{socket.gethostname()}-{os.getpid()}"
        self._tile = random.Random(seed).randbytes(TILE)
        self._source = buffer(MAX_BLOCK)
        self._source[:] = self._tile * (MAX_BLOCK // TILE)
        self._descriptor = -1
        self.direct = False
        """Whether reads and writes bypass the page cache (O_DIRECT)."""

    def __enter__(self) -> Self:
        remove_leftovers(self._folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        try:
            self._descriptor = os.open(self._path, flags | os.O_DIRECT, 0o600)
            self.direct = True
        except OSError as refusal:
            if refusal.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            self._path.unlink(
                missing_ok=True
            )  # some file systems create the file although the call fails
            self._descriptor = os.open(self._path, flags, 0o600)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)
        self._path.unlink(missing_ok=True)

    @property
    def size_bytes(self) -> int:
        """The current size of the file."""
        return os.fstat(self._descriptor).st_size

    def empty(self) -> None:
        """Truncate the file, so that the next write allocates its blocks again."""
        os.ftruncate(self._descriptor, 0)

    def write(self, offset: int, size_bytes: int) -> None:
        """Write the content of the file that belongs at ``offset``."""
        end = offset + size_bytes
        view = memoryview(self._source)
        while offset < end:
            start = offset % MAX_BLOCK
            stop = min(start + end - offset, MAX_BLOCK)
            offset += os.pwritev(self._descriptor, [view[start:stop]], offset)

    def read(self, target: mmap.mmap, offset: int) -> None:
        """Read from ``offset`` into ``target``, which must be page-aligned."""
        view = memoryview(target)
        done = 0
        while done < len(target):
            count = os.preadv(self._descriptor, [view[done:]], offset + done)
            if count == 0:
                raise OSError(errno.EIO, "the file is shorter than what was written")
            done += count

    def matches(self, content: mmap.mmap, offset: int) -> bool:
        """Whether ``content`` is what was written at ``offset``."""
        start = offset % TILE
        expected = self._tile * (len(content) // TILE + 2)
        return content[:] == expected[start : start + len(content)]

    def sync(self) -> None:
        """Wait until all written data is on the device."""
        os.fsync(self._descriptor)

    def drop_cache(self, *, random_reads: bool) -> None:
        """Ask the kernel to drop the cached pages, and not to read ahead for random reads."""
        advice = os.POSIX_FADV_RANDOM if random_reads else os.POSIX_FADV_SEQUENTIAL
        os.posix_fadvise(self._descriptor, 0, 0, advice)
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def cached_share(self) -> float:
        """Return the share of the file in the page cache; 1 if it cannot be determined."""
        size_bytes = self.size_bytes
        pages = -(-size_bytes // mmap.PAGESIZE)
        resident = (ctypes.c_ubyte * pages)()
        with mmap.mmap(self._descriptor, size_bytes) as mapped:
            start = ctypes.c_char.from_buffer(mapped)
            failed = ctypes.CDLL(None).mincore(
                ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size_bytes), resident
            )
            del start  # otherwise the map cannot be closed
        return 1.0 if failed else bytes(resident).count(1) / pages


def buffer(size_bytes: int) -> mmap.mmap:
    """Return page-aligned memory for direct reads and writes; its pages are already allocated."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    return mmap.mmap(-1, size_bytes, flags=flags)


def remove_leftovers(folder: Path) -> None:
    """Remove scratch files that killed processes on this host left behind."""
    prefix = f"{_PREFIX}{socket.gethostname()}-"
    for path in folder.glob(f"{prefix}*"):
        owner = path.name.removeprefix(prefix)
        if owner.isdigit() and not Path("/proc", owner).exists():
            path.unlink(missing_ok=True)
