"""Reading of submissions in other processes, so that a bad submission cannot end a build.

Each process has a memory limit. If one is killed all the same, by the kernel or by a library that
aborts, the pool breaks without saying what the process was reading. The submissions in question
are then read again one by one, and one that kills its process again is reported.
"""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import active_children, get_context

from vflops.data.process_pool import exit_with_parent
from vflops.errors import RunFailed
from vflops.interruption import ctrl_c_blocked
from vflops.machine.system.cpu_share import pool_processes
from vflops.publish.ranking.entry import Entry
from vflops.publish.ranking.judge import TrustedKeys
from vflops.publish.ranking.submission_folders import Submission
from vflops.publish.ranking.submission_reader import read
from vflops.python_start import safe_spawning
from vflops.record.files.read_once import read_once

CHUNK = 32
"""Submissions per task of a process."""
MAX_MEMORY_BYTES, _MIN_MEMORY_BYTES = 8 << 30, 2 << 30
"""The maximum address space of a process, and its minimum on small machines."""
KILLED = "the process that read it was killed, perhaps because it ran out of memory"

_PRELOADED = (
    "vflops.results.check.checking",
    "vflops.results.check.level",
    "vflops.publish.evidence.verify",
)

Entries = dict[Submission, tuple[str, Entry]]
"""Fingerprints, computed before reading, and entries by submission."""


def read_all(new: Sequence[Submission], trusted: TrustedKeys) -> Iterator[Entries]:
    """Yield the entries of new submissions in chunks, in no particular order."""
    waiting = [new[start : start + CHUNK] for start in range(0, len(new), CHUNK)]
    cores = pool_processes()
    while waiting:
        workers = min(cores, len(waiting))
        futures = []
        done = 0
        with _pool(workers) as pool:
            try:
                with ctrl_c_blocked():
                    futures = [pool.submit(read_chunk, chunk, trusted) for chunk in waiting]
                for future in futures:
                    yield future.result()
                    done += 1
            except BrokenProcessPool:
                pass
        # The pool breaks for all unfinished chunks: those that ran, and those that were queued.
        suspects = waiting[done : done + 2 * workers + 1]
        waiting = waiting[done + len(suspects) :]
        yield from _one_by_one([submission for chunk in suspects for submission in chunk], trusted)


def read_chunk(chunk: Sequence[Submission], trusted: TrustedKeys) -> Entries:
    """Return the entries of one chunk; called in a process of the pool."""
    return {submission: _read_one(submission, trusted) for submission in chunk}


def _read_one(submission: Submission, trusted: TrustedKeys) -> tuple[str, Entry]:
    with read_once(submission.path):  # the fingerprint comes from the same listing as the entry
        return submission.fingerprint(), read(submission, trusted)


def _one_by_one(suspects: Sequence[Submission], trusted: TrustedKeys) -> Iterator[Entries]:
    remaining = list(suspects)
    while remaining:
        with _pool(1) as pool:
            _require_working(pool)
            try:
                while remaining:
                    yield pool.submit(read_chunk, remaining[:1], trusted).result()
                    del remaining[0]
            except BrokenProcessPool:
                killer = remaining.pop(0)
                entry = Entry(
                    place=killer.place, source=killer.source, reasons=(KILLED,), retry=True
                )
                yield {killer: (killer.fingerprint(), entry)}


def _require_working(pool: ProcessPoolExecutor) -> None:
    """Raise if processes die without reading anything, since then no submission is to blame."""
    try:
        with ctrl_c_blocked():  # starts the only process
            started = pool.submit(os.getpid)
        started.result()
    except BrokenProcessPool as error:
        raise RunFailed(
            "the processes that read submissions die as soon as they start",
            hint="free some memory; a script that calls this needs `if __name__ == '__main__':`",
        ) from error


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool; Ctrl-C kills its processes, which would otherwise read what is queued."""
    # A fork server is faster for a few submissions. For many it makes no difference, and the CPU
    # time of spawned processes is included in that of this process.
    forkserver = get_context("forkserver")
    forkserver.set_forkserver_preload(["__main__", __name__, *_PRELOADED])
    context = forkserver if workers == 1 else get_context("spawn")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // workers
    limit = max(_MIN_MEMORY_BYTES, min(MAX_MEMORY_BYTES, memory))
    with (
        safe_spawning(),
        ProcessPoolExecutor(
            workers, mp_context=context, initializer=_set_up_process, initargs=(limit,)
        ) as pool,
    ):
        try:
            yield pool
        except BaseException:  # also if the caller of the generators that use it is interrupted
            for process in active_children():
                process.kill()
            raise


def _set_up_process(max_memory: int) -> None:
    """Set up a process: exit with the parent, collect garbage rarely, and limit the memory."""
    exit_with_parent()
    for name in _PRELOADED:
        import_module(name)
    gc.set_threshold(100_000)
    gc.freeze()  # modules are never garbage
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = max_memory if hard == resource.RLIM_INFINITY else min(max_memory, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
