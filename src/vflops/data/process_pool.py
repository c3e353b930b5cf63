"""Run tasks in worker processes, which exit with this process even if it is killed."""

from __future__ import annotations

import multiprocessing as mp
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from multiprocessing.synchronize import Event
from typing import Any, Protocol, TypeVar

from vflops import interruption
from vflops.errors import Interrupted, RunFailed
from vflops.machine.system.cpu_share import pool_processes
from vflops.python_start import safe_spawning

OnProgress = Callable[[int, int], None]
"""Called with the amount done and the total amount."""

Task = TypeVar("Task")
Result = TypeVar("Result")

_POLL_S = 0.2
_STOP_S = 1.0
"""How long workers may take to stop after an interruption."""


class Stopped(Exception):
    """Raised in a task if another task failed or the user stopped the work."""


class Reporter(Protocol):
    """The callback that a task calls after each of its samples."""

    def __call__(self, count: int = 1) -> None:
        """Count samples as done; raise ``Stopped`` if the task has to stop."""


def no_progress(done: int, total: int) -> None:
    """Show no progress."""


def default_workers(size: int, small: int) -> int:
    """Return the number of workers: 1 for up to ``small`` units of work, otherwise one per CPU.

    ``OMP_NUM_THREADS`` may allow fewer.
    """
    return 1 if size <= small else pool_processes()


def iter_results(
    function: Callable[[Task, Reporter], Result],
    tasks: Sequence[Task],
    *,
    workers: int,
    total: int,
    on_progress: OnProgress,
) -> Generator[tuple[int, Result], None, None]:
    """Yield (position, result) of each task as it finishes; the first error stops all others.

    ``function`` is defined at the top level of a module, because spawned processes import it. With
    one worker the tasks run in this process.
    """
    if workers <= 1 or len(tasks) <= 1:
        yield from _in_this_process(function, tasks, total, on_progress)
    else:
        yield from _in_processes(function, tasks, min(workers, len(tasks)), total, on_progress)


def run_all(
    function: Callable[[Task, Reporter], Result],
    tasks: Sequence[Task],
    *,
    workers: int,
    total: int,
    on_progress: OnProgress,
    done: str,
    hint: str = "the same command resumes where it stopped",
) -> list[Result]:
    """Return the results of all tasks in order.

    ``done`` is the end of the message after an interrupt: "3 of 8 shards are packed".
    """
    results: dict[int, Result] = {}
    work = iter_results(function, tasks, workers=workers, total=total, on_progress=on_progress)
    try:
        with closing(work):
            results.update(work)
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"{interruption.cause(error)}; {len(results)} of {len(tasks)} {done}",
            hint=hint,
        ) from None
    return [results[position] for position in range(len(tasks))]


def _in_this_process(
    function: Callable[[Task, Reporter], Result],
    tasks: Sequence[Task],
    total: int,
    on_progress: OnProgress,
) -> Iterator[tuple[int, Result]]:
    done = 0

    def report(count: int = 1) -> None:
        nonlocal done
        done += count
        on_progress(done, total)

    for position, task in enumerate(tasks):
        yield position, function(task, report)


def _in_processes(
    function: Callable[[Task, Reporter], Result],
    tasks: Sequence[Task],
    workers: int,
    total: int,
    on_progress: OnProgress,
) -> Iterator[tuple[int, Result]]:
    # Spawned, not forked: a fork copies locks held by threads that it does not copy.
    context = mp.get_context("spawn")
    with safe_spawning():  # the tracker of semaphores is a process, too
        stop, done = context.Event(), context.Value("q", 0)
    pool = ProcessPoolExecutor(workers, context, _start_worker, (stop, done))
    try:
        with safe_spawning(), interruption.ctrl_c_blocked():
            futures: dict[Future[Result], int] = {
                pool.submit(_run, function, task): position for position, task in enumerate(tasks)
            }
        waiting = set(futures)
        while waiting:
            ready, waiting = wait(waiting, _POLL_S, FIRST_COMPLETED)
            on_progress(done.value, total)
            for future in ready:
                yield futures.pop(future), future.result()
    except KeyboardInterrupt:
        stop.set()
        _end_children()
        raise
    except BrokenProcessPool as error:
        raise RunFailed(
            "a worker process was killed from outside, most likely because memory ran out",
            hint="run the same command again with fewer --workers",
        ) from error
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
        del pool, stop, done  # a traceback would keep their semaphores, which are then reported


def _end_children() -> None:
    """Kill workers that do not stop by themselves, such as those that are still importing modules.

    Otherwise they would outlive this process, and then fail with a traceback.
    """
    end_s = time.monotonic() + _STOP_S
    for child in mp.active_children():
        child.join(max(end_s - time.monotonic(), 0))
        child.kill()


_reporter: Reporter | None = None  # set once, when a worker process starts


def _start_worker(stop: Event, done: Any) -> None:
    global _reporter

    def report(count: int = 1) -> None:
        with done.get_lock():
            done.value += count
        if stop.is_set():
            raise Stopped

    _reporter = report
    exit_with_parent()


def exit_with_parent() -> None:
    """Exit when the parent dies: otherwise a worker would wait forever for its next task."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = mp.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(function: Callable[[Task, Reporter], Result], task: Task) -> Result:
    assert _reporter is not None
    return function(task, _reporter)
