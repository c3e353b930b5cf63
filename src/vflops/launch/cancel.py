"""Cancels the jobs and the controller of a single run.

Because a pid may have been reused, a process is signalled only if it is recognised as part of the
run: by the lock file that it has open, or by its command line, which names the run folder.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from vflops.errors import RunFailed, UsageError
from vflops.launch.factory import launcher, launcher_class
from vflops.launch.launcher import JOBS_ASKED, Launcher
from vflops.launch.process_signals import has_open, signal_process
from vflops.record.files.lock import is_locked
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord

_POLL_S = 0.2
_KILL_LIMIT_S = 20.0
"""How long to wait until killed processes and jobs are gone."""


@dataclass(frozen=True)
class Cancelled:
    """The processes and jobs of a run that were cancelled."""

    controller: int | None
    """The pid of the run's controller; None if it had none."""
    controller_killed: bool
    """Whether the controller did not end in time."""
    jobs: frozenset[int]
    killed: frozenset[int]
    """The jobs that did not end in time."""


def active_jobs(folder: RunFolder, records: Sequence[JobRecord]) -> Collection[int]:
    """Return the jobs of a run that are queued or running."""
    return launcher(folder, records).active_jobs() if records else ()


def cancel_run(folder: RunFolder, records: Sequence[JobRecord], limit_s: float) -> Cancelled:
    """Ask the controller and the jobs to write checkpoints and end; kill them after the limit."""
    end_s = time.monotonic() + limit_s
    controller = _controller(folder)
    active = frozenset(active_jobs(folder, records))
    controller_killed = controller is not None and _end_controller(folder, controller, end_s)
    with folder.in_use():  # keeps other controllers from taking over
        killed: frozenset[int] = frozenset()
        if records:
            jobs = launcher(folder, records)
            if controller is None or not _jobs_asked(folder):  # asking twice would kill them
                jobs.stop()
            killed = frozenset(_end_jobs(jobs, end_s))
        launcher_class(folder.record.settings.launch.on).release(folder)
        if killed or controller_killed or (active and controller is None):
            with folder.start_attempt(job=0) as events:
                events.write("stopped", message="cancelled by the user")
    return Cancelled(controller, controller_killed, active | killed, killed)


def _end_controller(folder: RunFolder, controller: int, end_s: float) -> bool:
    """Ask the controller to stop its jobs and itself; return whether it had to be killed."""
    lock = folder.lock

    def holds_lock() -> bool:
        return has_open(controller, lock)

    signal_process(controller, signal.SIGTERM, holds_lock)
    _wait(lambda: not holds_lock(), end_s)
    if not holds_lock():
        return False
    signal_process(controller, signal.SIGKILL, holds_lock)
    _wait(lambda: not holds_lock(), time.monotonic() + _KILL_LIMIT_S)
    return True


def _jobs_asked(folder: RunFolder) -> bool:
    """Whether the newest controller asked its jobs to end before it ended itself."""
    logs = folder.job_history(0)
    return bool(logs) and any(event.kind == JOBS_ASKED for event in logs[-1].events)


def _end_jobs(jobs: Launcher, end_s: float) -> set[int]:
    """Wait for jobs that were asked to end, and kill the rest; return those that were killed."""
    _wait(lambda: not jobs.active_jobs(), end_s)
    killed = set(jobs.active_jobs())
    if killed:
        jobs.kill()
        _wait(lambda: not jobs.active_jobs(), time.monotonic() + _KILL_LIMIT_S)
    if left := jobs.active_jobs():
        raise RunFailed(
            f"job {', '.join(map(str, sorted(left)))} is still there after it was killed",
            hint="its node may be lost: cancel again, or ask the system's administrators",
        )
    return killed


def _wait(is_done: Callable[[], bool], end_s: float) -> None:
    while not is_done() and time.monotonic() < end_s:
        time.sleep(_POLL_S)


def _controller(folder: RunFolder) -> int | None:
    """Return the pid of the process that controls the run; None if there is none."""
    lock = folder.lock
    if not is_locked(lock):
        return None
    text = lock.read_text().strip()
    if text.isdigit() and has_open(int(text), lock):
        return int(text)
    raise UsageError(
        f"{folder.path} is held by process {text or 'unknown'}, which is not visible from here",
        hint="cancel it on the machine where it was started, as the user who started it",
    )
