"""A run's jobs and its controller ended, and those of no other run.

A process is signalled only while it is known to be the one that is meant: by the lock that it has
open, or by the command that names the run folder. Its number alone may be another's by now.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vflops.errors import RunFailed, UsageError
from vflops.launch.factory import scheduled
from vflops.launch.interface import ASKED
from vflops.record.files.lock import is_locked
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord

_LOOK_S = 0.2
_KILLED_S = 20.0
"""How long what was killed may take to be gone."""


@dataclass(frozen=True)
class Ended:
    """What was ended of a run."""

    controller: int | None
    """The process that held the run; None: nobody did."""
    controller_killed: bool
    jobs: frozenset[int]
    killed: frozenset[int]
    """Jobs that did not end in time."""


def alive(folder: RunFolder, records: Sequence[JobRecord]) -> Collection[int]:
    """The jobs of a run that wait or run."""
    return _jobs(folder, records, told=False).alive()


def end_run(folder: RunFolder, records: Sequence[JobRecord], limit_s: float) -> Ended:
    """Have a run's controller and jobs keep checkpoints and end; kill what does not in time."""
    end_s = time.monotonic() + limit_s
    controller = _controller(folder)
    jobs = _jobs(folder, records, told=controller is not None)
    seen = frozenset(jobs.alive())
    late = _end_controller(folder, controller, jobs, end_s) if controller is not None else False
    if controller is not None and not _asked(folder):
        jobs.forget()
    with folder.in_use():  # no other controller takes over meanwhile
        killed = frozenset(_end_jobs(jobs, end_s))
        if killed or late or (seen and controller is None):
            with folder.start_attempt(job=0) as events:
                events.write("stopped", message="cancelled by the user")
    return Ended(controller, late, seen | killed, killed)


class _Jobs(Protocol):
    """A run's jobs, wherever they are."""

    def alive(self) -> Collection[int]:
        """Those that wait or run."""

    def ask(self) -> None:
        """Ask each once to keep a checkpoint and end: twice is an order to end at once."""

    def kill(self) -> None:
        """End them."""

    def forget(self) -> None:
        """The controller is gone and has asked nobody."""


def _jobs(folder: RunFolder, records: Sequence[JobRecord], *, told: bool) -> _Jobs:
    """``told``: a living controller will ask them itself."""
    on = folder.record.settings.launch.on
    return _Agents(folder, told) if on == "local" else _Scheduled(folder, records, told)


class _Agents:
    """Processes of this machine, known by their command: the run folder and a job."""

    def __init__(self, folder: RunFolder, told: bool) -> None:
        self._folder = folder
        # A controller asks those that hold their lock; one that starts up does not yet.
        self._others = {pid for job, pid in self._pids().items() if told and self._holds(job, pid)}
        self._asked = set(self._others)

    def alive(self) -> Collection[int]:
        return self._pids()

    def ask(self) -> None:
        for job, pid in self._pids().items():
            if pid not in self._asked:
                self._asked.add(pid)
                self._send(job, pid, signal.SIGTERM)

    def forget(self) -> None:
        self._asked -= self._others

    def kill(self) -> None:
        for job, pid in self._pids().items():
            self._send(job, pid, signal.SIGKILL)

    def _send(self, job: int, pid: int, number: signal.Signals) -> None:
        _send(pid, number, lambda: _job_of(pid, self._folder) == job)

    def _holds(self, job: int, pid: int) -> bool:
        return _has_open(pid, self._folder.job_lock(job))

    def _pids(self) -> dict[int, int]:
        pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
        found = ((_job_of(pid, self._folder), pid) for pid in pids)
        return {job: pid for job, pid in found if job is not None}


class _Scheduled:
    """Jobs in the hands of a scheduler, known by the ids that were written down."""

    def __init__(self, folder: RunFolder, records: Sequence[JobRecord], told: bool) -> None:
        self._told = told
        self._launcher = scheduled(folder, records) if records else None

    def alive(self) -> Collection[int]:
        return self._launcher.alive() if self._launcher else ()

    def ask(self) -> None:
        if self._launcher and not self._told:
            self._told = True
            self._launcher.stop()

    def forget(self) -> None:
        self._told = False

    def kill(self) -> None:
        if self._launcher:
            self._launcher.kill()


def _end_controller(folder: RunFolder, controller: int, jobs: _Jobs, end_s: float) -> bool:
    """Have the controller stop its jobs and itself; whether it had to be killed."""
    lock = folder.lock

    def holds() -> bool:
        return _has_open(controller, lock)

    _send(controller, signal.SIGTERM, holds)
    while holds() and time.monotonic() < end_s:
        time.sleep(_LOOK_S)
        jobs.ask()  # those that it could not
    if not holds():
        return False
    _send(controller, signal.SIGKILL, holds)
    _wait(lambda: not holds(), time.monotonic() + _KILLED_S)
    return True


def _asked(folder: RunFolder) -> bool:
    """Whether the newest controller came to ask its jobs to end, before it did itself."""
    logs = folder.job_history(0)
    return bool(logs) and any(event.kind == ASKED for event in logs[-1].events)


def _end_jobs(jobs: _Jobs, end_s: float) -> set[int]:
    """Ask what still runs, wait, and kill the rest; which those were."""
    while jobs.alive() and time.monotonic() < end_s:
        jobs.ask()
        time.sleep(_LOOK_S)
    killed = set(jobs.alive())
    if killed:
        jobs.kill()
        _wait(lambda: not jobs.alive(), time.monotonic() + _KILLED_S)
    if left := jobs.alive():
        raise RunFailed(
            f"still there after they were killed: job {', '.join(map(str, sorted(left)))}",
            hint="their node may be gone: cancel again, or ask who runs the system",
        )
    return killed


def _wait(until: Callable[[], bool], end_s: float) -> None:
    while not until() and time.monotonic() < end_s:
        time.sleep(_LOOK_S)


def _controller(folder: RunFolder) -> int | None:
    """The process that holds the run; None: nobody does."""
    lock = folder.lock
    if not is_locked(lock):
        return None
    text = lock.read_text().strip()
    if text.isdigit() and _has_open(int(text), lock):
        return int(text)
    raise UsageError(
        f"{folder.path} is held by process {text or 'unknown'}, which is not seen from here",
        hint="cancel it on the machine that it was started on, as the user who did",
    )


def _send(pid: int, number: signal.Signals, ours: Callable[[], bool]) -> None:
    """Signal a process if it is still the one that is meant: its number may be another's now."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            if ours():
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def _has_open(pid: int, file: Path) -> bool:
    """Whether the process has the file open, as one that holds a lock has."""
    with suppress(OSError):
        known = file.stat()
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if os.path.samestat(each.stat(), known):
                    return True
    return False


def _job_of(pid: int, folder: RunFolder) -> int | None:
    """The job of this run that the process is the agent of, if it is one."""
    with suppress(OSError, ValueError, IndexError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        at = words.index("vflops.launch.agent")
        if words[at - 1] == "-m":
            place = Path(f"/proc/{pid}/cwd").readlink() / words[at + 1]
            if place.resolve() == folder.path.resolve():
                return int(words[at + 2])
    return None
