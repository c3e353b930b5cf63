"""Measures the file system of the run folder: sequential write, sequential and random read.

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

_MAX_FILE_BYTES = 1 << 30
_SPACE_SHARE = 0.25
"""Maximum share of the free space that is used temporarily."""
_FILL_SHARE = 0.3
"""Share of an item's time for writing its file."""
_PARTS = 16
"""Number of parts of the file; a sequential sample covers one part."""
_BLOCKS = ((4 << 20, 1), (1 << 20, 1), (4 << 20, 4), (16 << 20, 1))
"""Bytes per sequential read or write, and the number of threads."""
_THREADS = (16, 4, 1, 64)
"""Numbers of threads for random reads; each thread has one read in flight."""
_RANDOM_S, _RANDOM_SHARE = 0.02, 0.02
"""Length of a sample of random reads with one thread, and its maximum share of the item's time."""
_MIN_READS = 8
"""Minimum number of reads per thread in a sample."""
_COARSE_SAMPLES = _MIN_SAMPLES = 3
_FINAL_SAMPLES = 9
_SEARCH_SHARE = 0.5
_MAX_CACHED_SHARE = 0.01
"""If a larger share of the file is in the page cache, the value gets a caveat."""


@dataclass
class _Access:
    """A way of reading or writing the file, and the times of its samples."""

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
        return task.out_of_time(device)
    try:
        space = os.statvfs(task.folder)
        free_bytes = space.f_bavail * space.f_frsize
        max_bytes = min(int(_SPACE_SHARE * free_bytes), _MAX_FILE_BYTES) // TILE * TILE
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
    """Measures one case on one file."""

    def __init__(self, task: Task, file: ScratchFile, pool: ThreadPoolExecutor) -> None:
        self._task = task
        self._case = task.item.case
        self._file = file
        self._pool = pool
        self._cached_share = 0.0
        self._random = random.Random(task.item_seed)

    def fill(self, max_bytes: int) -> None:
        """Write the file, as large as its share of the time allows, but at least one tile."""
        fill_deadline = self._task.deadline.limited_to(_FILL_SHARE * self._task.deadline.left_s())
        size_bytes = 0
        while size_bytes < max_bytes and (size_bytes == 0 or fill_deadline.left_s() > 0):
            self._file.write(size_bytes, TILE)
            size_bytes += TILE
        self._file.sync()

    def measure(self, device: str, hidden_cache_caveat: str | None) -> Measurement:
        """Try all settings, sample the fastest again, and check the contents of the file."""
        best, tried = self._search()
        if not self._is_intact():
            return self._task.item.absent_measurement(
                device, "wrong result: the file does not hold what was written"
            )
        return self._task.item.measurement(
            device,
            best.speeds,
            setting=best.setting,
            tried=tuple(access.trial for access in tried),
            error=0.0,
            tolerance=0.0,
            caveat=hidden_cache_caveat or self._page_cache_caveat(),
        )

    def _search(self) -> tuple[_Access, list[_Access]]:
        deadline = self._task.deadline
        search_deadline = deadline.limited_to(_SEARCH_SHARE * deadline.left_s())
        tried: list[_Access] = []
        for access in self._accesses():
            if tried and search_deadline.left_s() < max(sum(earlier.times_s) for earlier in tried):
                break
            access.times_s = self._samples(access, _COARSE_SAMPLES, search_deadline)
            tried.append(access)
            self._task.on_trial(access.trial)
        best = max(tried, key=lambda access: access.trial.value)
        if deadline.left_s() > sum(best.times_s):
            best.times_s = self._samples(best, _FINAL_SAMPLES, deadline)
        return best, tried

    def _accesses(self) -> Iterator[_Access]:
        if self._case == "random-read-4k":
            latency_s = self._latency_s()
            for threads in _THREADS:
                yield self._random_reads(threads, latency_s)
            return
        part_bytes = max(self._file.size_bytes // _PARTS // TILE, 1) * TILE
        for block_bytes, threads in _BLOCKS:
            if block_bytes * threads <= part_bytes:
                yield self._sequential(part_bytes, block_bytes, threads)

    def _sequential(self, part_bytes: int, block_bytes: int, threads: int) -> _Access:
        file = self._file
        writes = self._case == "sequential-write-fsync"
        # Reads start at random offsets, so that the cache of the drive has little effect.
        starts = [0] if writes else list(range(0, file.size_bytes - part_bytes + 1, part_bytes))
        buffers = [] if writes else [buffer(block_bytes) for _ in range(threads)]

        def work(thread: int, start: int) -> None:
            step = block_bytes * threads
            for offset in range(start + thread * block_bytes, start + part_bytes, step):
                if writes:
                    file.write(offset, block_bytes)
                else:
                    file.read(buffers[thread], offset)

        def call() -> None:
            self._in_threads(threads, work, self._random.choice(starts))
            if writes:
                file.sync()

        size_bytes = part_bytes if writes else file.size_bytes
        return _Access(self._setting(block_bytes, threads, size_bytes), part_bytes, call)

    def _random_reads(self, threads: int, latency_s: float) -> _Access:
        file = self._file
        pages = file.size_bytes // PAGE
        # The time is between that of sequential and that of fully parallel reads.
        sample_s = min(_RANDOM_S, _RANDOM_SHARE * self._task.deadline.left_s())
        reads = max(int(sample_s / latency_s / math.sqrt(threads)), _MIN_READS)
        buffers = [buffer(PAGE) for _ in range(threads)]

        def work(thread: int, seed: int) -> None:
            choice = random.Random(seed + thread)
            for _ in range(reads):
                file.read(buffers[thread], PAGE * int(choice.random() * pages))

        def call() -> None:
            self._in_threads(threads, work, self._random.getrandbits(32))

        return _Access(self._setting(PAGE, threads, file.size_bytes), reads * threads, call)

    def _latency_s(self) -> float:
        page = buffer(PAGE)
        self._prepare()
        start_s = time.perf_counter()
        for _ in range(8):
            self._file.read(page, PAGE * self._random.randrange(self._file.size_bytes // PAGE))
        return (time.perf_counter() - start_s) / 8

    def _samples(self, access: _Access, max_samples: int, deadline: Deadline) -> list[float]:
        """Return the seconds of each call except the first, which is a warm-up."""
        times_s: list[float] = []
        while len(times_s) <= _MIN_SAMPLES or (
            len(times_s) <= max_samples and deadline.left_s() > times_s[-1]
        ):
            self._prepare()
            start_s = time.perf_counter()
            access.call()
            times_s.append(time.perf_counter() - start_s)
        return times_s[1:]

    def _prepare(self) -> None:
        """Prepare a sample: empty the file before a write, or drop the cache before a read."""
        if self._case == "sequential-write-fsync":
            self._file.empty()
            return
        self._file.drop_cache(random_reads=self._case == "random-read-4k")
        self._cached_share = max(self._cached_share, self._file.cached_share())

    def _page_cache_caveat(self) -> str | None:
        if self._cached_share <= _MAX_CACHED_SHARE:
            return None
        work = units.percent(self._cached_share)
        return f"cached: {work} of the file stayed in the page cache"

    def _is_intact(self) -> bool:
        """Whether the first, the last and a random tile of the file contain what was written."""
        content = buffer(TILE)
        ends = range(0, max(self._file.size_bytes - TILE, 0) + 1, TILE)
        for offset in {ends[0], ends[-1], self._random.choice(ends)}:
            self._file.read(content, offset)
            if not self._file.matches(content, offset):
                return False
        return True

    def _setting(self, block_bytes: int, threads: int, size_bytes: int) -> dict[str, int | str]:
        return {
            "block_bytes": block_bytes,
            "threads": threads,
            "file_bytes": size_bytes,
            "access": "direct" if self._file.direct else "page cache dropped",
        }

    def _in_threads(self, threads: int, work: Callable[[int, int], None], argument: int) -> None:
        if threads == 1:
            work(0, argument)
            return
        for future in [self._pool.submit(work, thread, argument) for thread in range(threads)]:
            future.result()
