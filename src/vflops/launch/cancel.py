"""Cancel one run's jobs and controller, and nothing else.

A process is signalled only while it is known to be the right one: by the lock that it has open, or
by its command, which names the run folder. Its pid alone may have been reused.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from vflops.errors import RunFailed, UsageError
from vflops.launch.backend import CancellableJobs
from vflops.launch.factory import backend
from vflops.launch.interface import ASKED
from vflops.launch.process_signals import has_open, signal_process
from vflops.record.files.lock import is_locked
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord

_POLL_S = 0.2
_KILL_LIMIT_S = 20.0
"""How long killed processes and jobs may take to disappear."""


@dataclass(frozen=True)
class Cancelled:
    """What was cancelled of a run."""

    controller: int | None
    """The process that controlled the run; None if there was none."""
    controller_killed: bool
    jobs: frozenset[int]
    killed: frozenset[int]
    """Jobs that did not end in time."""


def active_jobs(folder: RunFolder, records: Sequence[JobRecord]) -> Collection[int]:
    """Return the jobs of a run that are queued or running."""
    return _cancellable(folder, records, controlled=False).active_jobs()


def cancel_run(folder: RunFolder, records: Sequence[JobRecord], limit_s: float) -> Cancelled:
    """Ask a run's controller and jobs to write checkpoints and end; kill them after the limit."""
    end_s = time.monotonic() + limit_s
    controller = _controller(folder)
    jobs = _cancellable(folder, records, controlled=controller is not None)
    active = frozenset(jobs.active_jobs())
    late = controller is not None and _end_controller(folder, controller, jobs, end_s)
    if controller is not None and not _jobs_asked(folder):
        jobs.controller_gone()
    with folder.in_use():  # no other controller takes over meanwhile
        killed = frozenset(_end_jobs(jobs, end_s))
        if killed or late or (active and controller is None):
            with folder.start_attempt(job=0) as events:
                events.write("stopped", message="cancelled by the user")
    return Cancelled(controller, late, active | killed, killed)


def _cancellable(
    folder: RunFolder, records: Sequence[JobRecord], *, controlled: bool
) -> CancellableJobs:
    place = backend(folder.record.settings.launch.on)
    return place.cancellable(folder, records, controlled=controlled)


def _end_controller(
    folder: RunFolder, controller: int, jobs: CancellableJobs, end_s: float
) -> bool:
    """Have the controller stop its jobs and itself; return whether it had to be killed."""
    lock = folder.lock

    def holds_lock() -> bool:
        return has_open(controller, lock)

    signal_process(controller, signal.SIGTERM, holds_lock)
    while holds_lock() and time.monotonic() < end_s:
        time.sleep(_POLL_S)
        jobs.stop()  # those that the controller cannot ask
    if not holds_lock():
        return False
    signal_process(controller, signal.SIGKILL, holds_lock)
    _wait(lambda: not holds_lock(), time.monotonic() + _KILL_LIMIT_S)
    return True


def _jobs_asked(folder: RunFolder) -> bool:
    """Whether the newest controller asked its jobs to end before it ended itself."""
    logs = folder.job_history(0)
    return bool(logs) and any(event.kind == ASKED for event in logs[-1].events)


def _end_jobs(jobs: CancellableJobs, end_s: float) -> set[int]:
    """Ask the active jobs to end, wait, and kill the rest; return those that were killed."""
    while jobs.active_jobs() and time.monotonic() < end_s:
        jobs.stop()
        time.sleep(_POLL_S)
    killed = set(jobs.active_jobs())
    if killed:
        jobs.kill()
        _wait(lambda: not jobs.active_jobs(), time.monotonic() + _KILL_LIMIT_S)
    if left := jobs.active_jobs():
        raise RunFailed(
            f"still there after they were killed: job {', '.join(map(str, sorted(left)))}",
            hint="their node may be lost: cancel again, or ask the system's administrators",
        )
    return killed


def _wait(until: Callable[[], bool], end_s: float) -> None:
    while not until() and time.monotonic() < end_s:
        time.sleep(_POLL_S)


def _controller(folder: RunFolder) -> int | None:
    """Return the process that controls the run; None if there is none."""
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
