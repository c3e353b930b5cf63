"""Submissions read by other processes: what one of them does to its reader is an entry, no more.

Each process has an end to the memory that it may take. One that is killed all the same, by the
kernel or by a library that gives up, breaks the pool and does not say what it read: those that it
may have been reading are read once more, one by one, and the one that kills again is named.
"""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from vflops.errors import RunFailed
from vflops.publish.ranking.entry import Entry
from vflops.publish.ranking.submission_folders import Submission
from vflops.publish.ranking.submission_reader import read

CHUNK = 32
"""Submissions that a process takes at once."""
MOST_MEMORY, _LEAST_MEMORY = 8 << 30, 2 << 30
"""Bytes of address space of a process: the most, and the least, where the machine has little."""
KILLED = "the process that read it was killed, perhaps for its memory"

_JUDGES = (
    "vflops.results.check.checking",
    "vflops.results.check.level",
    "vflops.publish.evidence.verify",
)

Entries = dict[Submission, tuple[str, Entry]]
"""What was read, with the fingerprint from before it was."""


def read_all(new: Sequence[Submission], signers: Path | None) -> Iterator[Entries]:
    """The entries of what is new, in chunks, in no order that means anything."""
    waiting = [new[start : start + CHUNK] for start in range(0, len(new), CHUNK)]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    while waiting:
        workers = min(cores, len(waiting))
        futures = []
        done = 0
        with _pool(workers) as pool:
            try:
                futures = [pool.submit(read_chunk, chunk, signers) for chunk in waiting]
                for future in futures:
                    yield future.result()
                    done += 1
            except BrokenProcessPool:
                pass
        # It breaks for all that have not ended: those that ran, and those that were handed out.
        suspects = waiting[done : done + 2 * workers + 1]
        waiting = waiting[done + len(suspects) :]
        yield from _one_by_one([each for chunk in suspects for each in chunk], signers)


def read_chunk(chunk: Sequence[Submission], signers: Path | None) -> Entries:
    """What a process does."""
    return {each: (each.fingerprint(), read(each, signers)) for each in chunk}


def _one_by_one(suspects: Sequence[Submission], signers: Path | None) -> Iterator[Entries]:
    left = list(suspects)
    while left:
        with _pool(1) as pool:
            _proven(pool)
            try:
                while left:
                    yield pool.submit(read_chunk, left[:1], signers).result()
                    del left[0]
            except BrokenProcessPool:
                killer = left.pop(0)
                entry = Entry(place=killer.place, source=killer.source, reasons=(KILLED,))
                yield {killer: (killer.fingerprint(), entry)}


def _proven(pool: ProcessPoolExecutor) -> None:
    """An error where processes die of themselves: no submission is to blame then."""
    try:
        pool.submit(os.getpid).result()
    except BrokenProcessPool as error:
        raise RunFailed(
            "no process that reads submissions stays alive",
            hint="free some memory; a script that calls this needs `if __name__ == '__main__':`",
        ) from error


def _pool(workers: int) -> ProcessPoolExecutor:
    # For a few, a server that forks and stays is quicker; for many it does not matter, and the time
    # of processes that are our own is counted with ours.
    forks = get_context("forkserver")
    forks.set_forkserver_preload(["__main__", __name__, *_JUDGES])
    context = forks if workers == 1 else get_context("spawn")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // workers
    most = max(_LEAST_MEMORY, min(MOST_MEMORY, memory))
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(most,))


def _begin(most: int) -> None:
    """A process that reads: little time for garbage, and an end to how much memory it may take."""
    gc.set_threshold(100_000)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
