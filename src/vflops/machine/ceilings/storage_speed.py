"""Speed of the run folder's file system: sequential write with fsync, sequential and random read.

Reads and writes bypass the page cache (O_DIRECT) if the file system supports it; otherwise the
cache is dropped before each sample. In both cases the kernel then reports how much of the file is
cached (mincore), and a value that the cache may have affected gets a caveat.
"""

from __future__ import annotations

import errno
import math
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from vflops import units
from vflops.machine.ceilings.deadline import Deadline
from vflops.machine.ceilings.sample_statistics import median
from vflops.machine.ceilings.scratch_file import PAGE, TILE, ScratchFile, buffer
from vflops.machine.ceilings.task import Task
from vflops.machine.system.filesystem import file_system, hidden_cache
from vflops.record.formats.measurement import Measurement, Trial

_LARGEST_BYTES = 1 << 30
_ROOM_SHARE = 0.25
"""Share of the free space that may be used temporarily."""
_FILL_SHARE = 0.3
"""Share of an item's time for creating its file."""
_PARTS = 16
"""A sample covers this fraction of the file: 1 over it."""
_BLOCKS = ((4 << 20, 1), (1 << 20, 1), (4 << 20, 4), (16 << 20, 1))
"""Bytes of one sequential read or write, and threads that share the file."""
_THREADS = (16, 4, 1, 64)
"""Threads of random reads; each has one read in flight."""
_RANDOM_S, _RANDOM_SHARE = 0.02, 0.02
"""Length of a sample of random reads with one thread, at most this share of the item's time."""
_LEAST_READS = 8
"""Reads per thread in a sample."""
_COARSE_SAMPLES = _LEAST_SAMPLES = 3
_FINAL_SAMPLES = 9
_SEARCH_SHARE = 0.5
_CACHED = 0.01
"""If more of the file than this is in the page cache, the value gets a caveat."""


@dataclass
class _Way:
    """A setting for reading or writing the file, and the times of its samples."""

    setting: dict[str, int | str]
    work: int
    """Bytes or reads per sample."""
    call: Callable[[], None]
    times_s: list[float] = field(default_factory=list)

    @property
    def speeds(self) -> list[float]:
        return [self.work / time_s for time_s in self.times_s]

    @property
    def trial(self) -> Trial:
        return Trial(setting=self.setting, value=median(self.speeds))


def measure(task: Task) -> Measurement:
    """Measure the bytes or reads per second of the item's case."""
    system = file_system(task.folder)
    device = f"{system} file system"
    if task.overall_deadline.left_s() <= 0:
        return task.item.absent_measurement(device, task.out_of_time_reason)
    try:
        room = os.statvfs(task.folder)
        free_bytes = room.f_bavail * room.f_frsize
        max_bytes = min(int(_ROOM_SHARE * free_bytes), _LARGEST_BYTES) // TILE * TILE
        if max_bytes == 0:
            free = units.quantity(free_bytes, "B")
            return task.item.absent_measurement(
                device, f"no space in the run folder: {free} are free"
            )
        with (
            ScratchFile(task.folder, task.item_seed) as file,
            ThreadPoolExecutor(max(_THREADS)) as pool,
        ):
            bench = _Bench(task, file, pool)
            bench.fill(max_bytes)
            return bench.measure(device, hidden_cache(system))
    except OSError as failure:
        if failure.errno in (errno.ENOSPC, errno.EDQUOT):
            return task.item.absent_measurement(device, "the file system of the run folder is full")
        return task.item.absent_measurement(
            device, f"cannot use the run folder: {failure.strerror}"
        )


class _Bench:
    """One case on one file."""

    def __init__(self, task: Task, file: ScratchFile, pool: ThreadPoolExecutor) -> None:
        self._task = task
        self._case = task.item.case
        self._file = file
        self._pool = pool
        self._cached_share = 0.0
        self._random = random.Random(task.item_seed)

    def fill(self, max_bytes: int) -> None:
        """Make the file as large as its share of the time allows, but at least one tile."""
        until = self._task.deadline.limited_to(_FILL_SHARE * self._task.deadline.left_s())
        size_bytes = 0
        while size_bytes < max_bytes and (size_bytes == 0 or until.left_s() > 0):
            self._file.write(size_bytes, TILE)
            size_bytes += TILE
        self._file.sync()

    def measure(self, device: str, hidden: str | None) -> Measurement:
        """Try all settings, sample the fastest again, and compare the content."""
        best, tried = self._search()
        if not self._intact():
            return self._task.item.absent_measurement(
                device, "wrong result: the file does not hold what was written"
            )
        return self._task.item.measurement(
            device,
            best.speeds,
            setting=best.setting,
            tried=tuple(way.trial for way in tried),
            error=0.0,
            tolerance=0.0,
            caveat=hidden or self._page_cache(),
        )

    def _search(self) -> tuple[_Way, list[_Way]]:
        deadline = self._task.deadline
        searching = deadline.limited_to(_SEARCH_SHARE * deadline.left_s())
        tried: list[_Way] = []
        for way in self._ways():
            if tried and searching.left_s() < max(sum(other.times_s) for other in tried):
                break
            way.times_s = self._samples(way, _COARSE_SAMPLES, searching)
            tried.append(way)
            self._task.on_trial(way.trial)
        best = max(tried, key=lambda way: way.trial.value)
        if deadline.left_s() > sum(best.times_s):
            best.times_s = self._samples(best, _FINAL_SAMPLES, deadline)
        return best, tried

    def _ways(self) -> Iterator[_Way]:
        if self._case == "random-read-4k":
            latency_s = self._latency_s()
            for threads in _THREADS:
                yield self._random_reads(threads, latency_s)
            return
        part_bytes = max(self._file.size_bytes // _PARTS // TILE, 1) * TILE
        for block_bytes, threads in _BLOCKS:
            if block_bytes * threads <= part_bytes:
                yield self._sequential(part_bytes, block_bytes, threads)

    def _sequential(self, part_bytes: int, block_bytes: int, threads: int) -> _Way:
        file = self._file
        writes = self._case == "sequential-write-fsync"
        # Every read starts at another offset, so that the drive's cache helps little.
        starts = [0] if writes else list(range(0, file.size_bytes - part_bytes + 1, part_bytes))
        buffers = [] if writes else [buffer(block_bytes) for _ in range(threads)]

        def share(thread: int, start: int) -> None:
            step = block_bytes * threads
            for offset in range(start + thread * block_bytes, start + part_bytes, step):
                if writes:
                    file.write(offset, block_bytes)
                else:
                    file.read(buffers[thread], offset)

        def call() -> None:
            self._in_threads(threads, share, self._random.choice(starts))
            if writes:
                file.sync()

        size_bytes = part_bytes if writes else file.size_bytes
        return _Way(self._setting(block_bytes, threads, size_bytes), part_bytes, call)

    def _random_reads(self, threads: int, latency_s: float) -> _Way:
        file = self._file
        pages = file.size_bytes // PAGE
        # Between the reads of one thread and those of all threads in parallel.
        sample_s = min(_RANDOM_S, _RANDOM_SHARE * self._task.deadline.left_s())
        reads = max(int(sample_s / latency_s / math.sqrt(threads)), _LEAST_READS)
        buffers = [buffer(PAGE) for _ in range(threads)]

        def share(thread: int, seed: int) -> None:
            choice = random.Random(seed + thread)
            for _ in range(reads):
                file.read(buffers[thread], PAGE * int(choice.random() * pages))

        def call() -> None:
            self._in_threads(threads, share, self._random.getrandbits(32))

        return _Way(self._setting(PAGE, threads, file.size_bytes), reads * threads, call)

    def _latency_s(self) -> float:
        page = buffer(PAGE)
        self._prepare()
        start_s = time.perf_counter()
        for _ in range(8):
            self._file.read(page, PAGE * self._random.randrange(self._file.size_bytes // PAGE))
        return (time.perf_counter() - start_s) / 8

    def _samples(self, way: _Way, most: int, deadline: Deadline) -> list[float]:
        """Return the seconds of each run but the first, which warms up."""
        times_s: list[float] = []
        while len(times_s) <= _LEAST_SAMPLES or (
            len(times_s) <= most and deadline.left_s() > times_s[-1]
        ):
            self._prepare()
            start_s = time.perf_counter()
            way.call()
            times_s.append(time.perf_counter() - start_s)
        return times_s[1:]

    def _prepare(self) -> None:
        """Prepare a sample, untimed: empty the file for a write, drop the cache for a read."""
        if self._case == "sequential-write-fsync":
            self._file.empty()
            return
        self._file.drop_cache(random_reads=self._case == "random-read-4k")
        self._cached_share = max(self._cached_share, self._file.cached_share())

    def _page_cache(self) -> str | None:
        if self._cached_share <= _CACHED:
            return None
        share = units.percent(self._cached_share)
        return f"cached: {share} of the file stayed in the page cache"

    def _intact(self) -> bool:
        """Whether the file contains what was written, as far as one sample reaches."""
        content = buffer(TILE)
        ends = range(0, max(self._file.size_bytes - TILE, 0) + 1, TILE)
        for offset in {ends[0], ends[-1], self._random.choice(ends)}:
            self._file.read(content, offset)
            if not self._file.holds(content, offset):
                return False
        return True

    def _setting(self, block_bytes: int, threads: int, size_bytes: int) -> dict[str, int | str]:
        return {
            "block_bytes": block_bytes,
            "threads": threads,
            "file_bytes": size_bytes,
            "access": "direct" if self._file.direct else "page cache dropped",
        }

    def _in_threads(self, threads: int, share: Callable[[int, int], None], value: int) -> None:
        if threads == 1:
            share(0, value)
            return
        for done in [self._pool.submit(share, thread, value) for thread in range(threads)]:
            done.result()
