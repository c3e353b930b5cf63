"""An allocation of SLURM's that the user holds, in the place of its queue."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from vflops.errors import RunFailed, UsageError
from vflops.launch.job_script import Request, step_name
from vflops.launch.scheduler import Allocation, Scheduler, Seen, expand, held_allocation
from vflops.launch.slurm.commands import ask, scancel
from vflops.launch.submissions import Submitted, intents, submitted
from vflops.record.files import atomic
from vflops.record.files.lock import is_locked
from vflops.record.folder import RunFolder

_LABEL = "held allocation "


class HeldAllocation(Scheduler):
    """Runs scripts on the nodes of an allocation; nothing is submitted.

    A script outlives this process. It is known to run by the lock that it inherits, and from
    another machine by its steps.
    """

    def __init__(self, allocation: Allocation, folder: Path) -> None:
        """``folder``: where the scripts are, and the run that their steps are named after."""
        super().__init__("slurm")
        self.label = f"{_LABEL}{allocation.job_id}"
        self._held, self._folder = allocation, folder
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._chosen: dict[str, tuple[str, ...]] = {}

    def submit(self, request: Request) -> str:
        """Run the script in a session of its own; its name."""
        job, nodes = self._held.job_id, self._held.nodes
        if request.nodes > len(nodes):
            raise UsageError(
                f"{request.nodes} nodes are needed, and the allocation {job} has {len(nodes)}",
                hint="run fewer models, hold more nodes, or start outside of the allocation",
            )
        if living(job) is None:
            raise RunFailed(
                f"the allocation {job} has ended",
                hint="go on outside of it, or in another: vflops attach RUN",
            )
        chosen = sorted(nodes, key=lambda node: node in request.exclude)[: request.nodes]
        self._chosen[request.script.stem] = tuple(chosen)
        own = {"SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": ",".join(chosen)}
        lock = self._lock(request.script.stem)
        try:
            with lock.open("a") as mark, request.output.open("ab") as output:
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._started[request.script.stem] = subprocess.Popen(
                    ["bash", str(request.script)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    pass_fds=[mark.fileno()],
                    env={**os.environ, **own},
                )
        except OSError as error:
            raise atomic.cannot_write(lock, error) from error
        return request.script.stem

    def find(self, name: str, intent: Path) -> str | None:
        """The script that the intent was for, while it runs."""
        script = intent.name.partition(".")[0]
        return script if self._look(script).state == "running" else None

    def look(self, ids: Sequence[str]) -> dict[str, Seen]:
        """A look at the locks is cheap: the interval stays short."""
        return {each: self._look(each) for each in ids}

    def cancel(self, ids: Sequence[str]) -> None:
        """End the steps of this run in the allocation, and the scripts that were started here."""
        self._signal("KILL")
        for process in (self._started[each] for each in ids if each in self._started):
            if process.poll() is None:  # else its number may be another's
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)

    def stop(self, ids: Sequence[str]) -> None:
        """Ask the steps of this run to keep a checkpoint and end."""
        self._signal("TERM")

    def _look(self, script: str) -> Seen:
        own, nodes = self._started.get(script), self._chosen.get(script, self._held.nodes)
        code = own.poll() if own is not None else None
        if is_locked(self._lock(script)) or (own is None and [*self._steps()]):
            return Seen("running", nodes, None)
        ended = "COMPLETED" if code == 0 else "FAILED"
        return Seen("ended", nodes, f"{ended}, exit code {code}" if code else ended)

    def _signal(self, name: str) -> None:
        if steps := [*self._steps()]:
            scancel(f"--signal={name}", *steps)

    def _steps(self) -> Iterator[str]:
        """The steps of this run's jobs in the allocation."""
        job = self._held.job_id
        listed = ask(["squeue", "--steps", "--noheader", f"--jobs={job}", "--format=%i|%j"])
        for line in listed.stdout.splitlines():
            step, _, name = line.strip().partition("|")
            if name.startswith(step_name(self._folder)):
                yield step

    def _lock(self, script: str) -> Path:
        return self._folder / f"{script}.lock"


def slurm(folder: Path) -> Scheduler:
    """The allocation that this process is in, else SLURM's queue."""
    held = held_allocation()
    return Scheduler("slurm") if held is None else HeldAllocation(held, folder)


def scheduler_for(folder: RunFolder, jobs: Sequence[int]) -> Scheduler:
    """Where the jobs of a run are now; where none is, the allocation that is held, or the queue."""
    known = [each for each in (submitted(folder, job) for job in jobs) if each is not None]
    meant = {each.scheduler for each in intents(folder)}
    for label in {*meant, *(each.scheduler for each in known)}:
        if not label.startswith(_LABEL):
            continue
        allocation = living(label.removeprefix(_LABEL))
        if allocation is not None:
            return HeldAllocation(allocation, folder.path)
    if held_allocation() is not None and ("slurm" in meant or _queued(known)):
        return Scheduler("slurm")
    return slurm(folder.path)


def _queued(known: Sequence[Submitted]) -> bool:
    ids = sorted({each.id for each in known if each.scheduler == "slurm"})
    return any(seen.state != "ended" for seen in Scheduler("slurm").look(ids).values())


def living(job: str) -> Allocation | None:
    """An allocation that goes on, with its nodes."""
    listed = ask(["squeue", "--noheader", "--states=RUNNING", f"--jobs={job}", "--format=%N"])
    nodes = tuple(expand(listed.stdout.strip())) if listed.returncode == 0 else ()
    return Allocation(job, nodes, ()) if nodes else None
