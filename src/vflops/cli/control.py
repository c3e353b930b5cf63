"""``vflops attach`` and ``vflops cancel``: a run's jobs, picked up again or ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from vflops.cli import options
from vflops.errors import RunFailed, UsageError

if TYPE_CHECKING:
    from vflops.record.folder import RunFolder
    from vflops.record.training import JobRecord

_LOOK_S = 0.2
_KILLED_S = 20.0
"""How long what was killed may take to be gone."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(attach)
    app.command()(cancel)


def attach(run: options.Run = None, quiet: options.Quiet = False) -> None:
    """Pick up the jobs of an ensemble whose controller died; nothing is started twice."""
    from vflops.cli.console import open_run, say, shown
    from vflops.cli.run import resume
    from vflops.record.lock import is_held

    folder = open_run(run)
    name, lock = shown(folder.path), _lock(folder)
    _refuse_complete(folder, "attach to")
    if is_held(lock):
        raise UsageError(
            f"{name} has a controller: process {lock.read_text().strip() or 'unknown'}",
            cure=f"let it see to its jobs, or end them: vflops cancel {name}",
        )
    records = _members(folder)
    if not records:
        raise UsageError(
            f"{name} has no jobs to attach to: no ensemble was planned in it",
            cure=f"go on with it: vflops resume {name}",
        )
    history = folder.history()
    ended = [record.job for record in records if history.ended(record.job)]
    alive = set(_jobs(folder, records, told=False).alive()) - set(ended)
    rest = len(records) - len(ended) - len(alive)
    say(
        f"attaching to {name}: of {len(records)} jobs {len(alive)} go on, {len(ended)} have ended"
        + (f", {rest} will be started" if rest else "")
    )
    resume(folder.path, quiet)


def cancel(
    run: options.Run = None,
    limit: Annotated[
        float, typer.Option(help="Seconds for checkpoints; what still runs is killed then.", min=0)
    ] = 90.0,
) -> None:
    """End the jobs of a run, and of no other; they keep checkpoints to go on from."""
    from vflops.cli.console import next_step, open_run, shown

    folder = open_run(run)
    _refuse_complete(folder, "cancel in")
    name, end_s = shown(folder.path), time.monotonic() + limit
    controller = _controller(folder)
    jobs = _jobs(folder, _members(folder), told=controller is not None)
    seen = set(jobs.alive())
    late = _end_controller(folder, controller, jobs, end_s) if controller is not None else False
    with folder.in_use():  # no other controller takes over meanwhile
        killed = _end_jobs(jobs, end_s)
        if killed or late or (seen and controller is None):
            with folder.start_attempt(job=0) as events:
                events.write("stopped", message="cancelled by the user")
    if controller is not None:
        typer.echo(f"{'killed' if late else 'ended'}: the controller, process {controller}")
    if seen or killed:
        typer.echo(_fates(folder, seen | killed, killed))
    if controller is None and not seen | killed:
        typer.echo(f"nothing of {name} is running")
    next_step(f"vflops resume {name}", "to go on with it")


def _refuse_complete(folder: RunFolder, what: str) -> None:
    from vflops.cli.console import shown

    if folder.history().state.complete:
        name = shown(folder.path)
        raise UsageError(
            f"{name} is complete: there is nothing to {what}",
            cure=f"look at it: vflops report {name}",
        )


def _members(folder: RunFolder) -> list[JobRecord]:
    """The base models that were planned."""
    from vflops.record.training import JobPlanned, JobRecord

    planned = [event.payload(JobPlanned).job for event in folder.history().events("job-planned")]
    records = [JobRecord.read(folder.job_file(job)) for job in dict.fromkeys(planned)]
    return [record for record in records if record.bag is not None]


def _fates(folder: RunFolder, jobs: Collection[int], killed: Collection[int]) -> str:
    from vflops.score.words import count

    kept = [job for job in jobs if any(_checkpoints(folder, job))]
    words = f"ended: {count(len(jobs), 'job')}, {len(kept)} with a checkpoint to go on from"
    if killed:
        numbers = ", ".join(map(str, sorted(killed)))
        words += f"; killed, because they did not end in time: {numbers}"
    return words


def _checkpoints(folder: RunFolder, job: int) -> list[Path]:
    return list((folder.job_file(job).parent / "checkpoint").glob("step-*.json"))


class _Jobs(Protocol):
    """A run's jobs, wherever they are."""

    def alive(self) -> Collection[int]:
        """Those that wait or run."""

    def ask(self) -> None:
        """Ask each once to keep a checkpoint and end: twice is an order to end at once."""

    def kill(self) -> None:
        """End them."""


def _jobs(folder: RunFolder, records: Sequence[JobRecord], *, told: bool) -> _Jobs:
    """``told``: a living controller will ask them itself."""
    on = folder.record.settings.launch.on
    return _Agents(folder, told) if on == "local" else _Scheduled(folder, records, told)


class _Agents:
    """Processes of this machine, known by their command: the run folder and a job."""

    def __init__(self, folder: RunFolder, told: bool) -> None:
        self._folder = folder
        # A controller asks those that hold their lock; one that starts up does not yet.
        self._asked = {pid for job, pid in self._pids().items() if told and self._holds(job, pid)}

    def alive(self) -> Collection[int]:
        return self._pids()

    def ask(self) -> None:
        for job, pid in self._pids().items():
            if pid not in self._asked:
                self._asked.add(pid)
                self._send(job, pid, signal.SIGTERM)

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
        from vflops.launch.choose import launcher

        self._folder, self._records, self._told = folder, records, told
        self._launcher = launcher(folder, records) if records else None

    def alive(self) -> Collection[int]:
        return self._launcher.alive() if self._launcher else ()

    def ask(self) -> None:
        if self._launcher and not self._told:
            self._told = True
            self._launcher.stop()

    def kill(self) -> None:
        from vflops.launch.scheduled_jobs import Submitted
        from vflops.launch.scheduler import Scheduler

        alive = self.alive()
        places = [self._folder.job_file(job).parent / "submitted.json" for job in alive]
        ids = {Submitted.read(path).id for path in places}
        scheduler = Scheduler(self._folder.record.settings.launch.on, self._folder.path / "psij")
        scheduler.cancel(sorted(ids))


def _end_controller(folder: RunFolder, controller: int, jobs: _Jobs, end_s: float) -> bool:
    """Have the controller stop its jobs and itself; whether it had to be killed."""
    lock = _lock(folder)

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
            cure="their node may be gone: cancel again, or ask who runs the system",
        )
    return killed


def _wait(until: Callable[[], bool], end_s: float) -> None:
    while not until() and time.monotonic() < end_s:
        time.sleep(_LOOK_S)


def _lock(folder: RunFolder) -> Path:
    return folder.path / ".lock"


def _controller(folder: RunFolder) -> int | None:
    """The process that holds the run; None: nobody does."""
    from vflops.record.lock import is_held

    lock = _lock(folder)
    if not is_held(lock):
        return None
    text = lock.read_text().strip()
    if text.isdigit() and _has_open(int(text), lock):
        return int(text)
    raise UsageError(
        f"{folder.path} is held by process {text or 'unknown'}, which is not seen from here",
        cure="cancel it on the machine that it was started on, as the user who did",
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
