"""An allocation that the user already has (``salloc``), used instead of SLURM's queue."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vflops.errors import RunFailed, UsageError
from vflops.launch.job_script import Request
from vflops.launch.scheduler import JobStatus, SchedulerUnavailable
from vflops.launch.slurm.commands import query, raise_if_unavailable, run_command, scancel
from vflops.launch.slurm.outage import CANCEL_LIMIT_S, Outage, patiently
from vflops.launch.slurm.sbatch_script import step_name
from vflops.launch.slurm.slurm_nodes import (
    Allocation,
    current_allocation,
    expand_nodes,
    list_nodes,
)
from vflops.launch.slurm.slurm_scheduler import NAME, SlurmScheduler
from vflops.launch.slurm.submissions import Submitted, read_intents, read_submission
from vflops.record.files import atomic
from vflops.record.files.lock import is_locked
from vflops.record.folder import RunFolder

_LABEL = "held allocation "
"""The prefix, before the allocation's id, of the scheduler's name in the record of such jobs."""


class AllocationScheduler(SlurmScheduler):
    """Runs scripts on the nodes of an allocation, instead of submitting them.

    A script outlives this process. While it runs, it holds a lock that it inherits; on other
    machines, it is recognised by its steps.
    """

    def __init__(self, allocation: Allocation, folder: Path) -> None:
        """``folder`` is the run folder, which has the scripts; steps are named after it."""
        super().__init__()
        self.label = f"{_LABEL}{allocation.job_id}"
        self.allocation: Allocation = allocation
        self._folder = folder
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._chosen: dict[str, tuple[str, ...]] = {}

    def submit(self, request: Request) -> str:
        """Start the script in a new session and return its name."""
        self.expect_change()
        job, nodes = self.allocation.job_id, self.allocation.nodes
        if request.nodes > len(nodes):
            raise UsageError(
                f"{request.nodes} nodes are needed, but the allocation {job} has {len(nodes)}",
                hint="run fewer models, allocate more nodes, or start outside of the allocation",
            )
        if running_allocation(job) is None:
            raise RunFailed(
                f"the allocation {job} has ended",
                hint="continue outside of it, or in another one: vflops attach RUN",
            )
        avoided = {*request.exclude, *(n.name for n in list_nodes(None) if not n.usable)}
        busy = set(self._busy_nodes())
        # SLURM 22.05 may keep the CPUs of a step that ends after another node of the allocation
        # died, so that the next step would wait for them.
        used = {node for names in self._chosen.values() for node in names}
        best = sorted(nodes, key=lambda node: (node in avoided, node in busy, node in used))
        chosen = best[: request.nodes]
        self._chosen[request.script.stem] = tuple(chosen)
        variables = {"SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": ",".join(chosen)}
        lock = self._lock(request.script.stem)
        try:
            with lock.open("a") as lock_file, request.output.open("ab") as output:
                fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._started[request.script.stem] = subprocess.Popen(
                    ["bash", str(request.script)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    pass_fds=[lock_file.fileno()],
                    env={**os.environ, **variables},
                )
        except OSError as error:
            raise atomic.cannot_write(lock, error) from error
        return request.script.stem

    def find(self, name: str, intent: Path) -> str | None:
        """Return the script that the intent announces, if it is running."""
        script = intent.name.partition(".")[0]
        return script if self._status_of(script).state == "running" else None

    def _query(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        return {script: self._status_of(script) for script in ids}

    def cancel(self, ids: Sequence[str]) -> None:
        """End the steps of this run in the allocation, and the scripts that were started here."""
        self._signal("KILL")
        for process in (self._started[script] for script in ids if script in self._started):
            if process.poll() is None:  # else its pid may belong to another process
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)

    def stop(self, ids: Sequence[str]) -> None:
        """Ask the steps of this run to write a checkpoint and end."""
        self._signal("TERM")

    def _status_of(self, script: str) -> JobStatus:
        process = self._started.get(script)
        nodes = self._chosen.get(script, self.allocation.nodes)
        code = process.poll() if process is not None else None
        try:
            if is_locked(self._lock(script)) or (process is None and self._steps()):
                return JobStatus("running", nodes, None)
        except SchedulerUnavailable as error:
            return JobStatus("running", nodes, error.message)
        if code == 0:
            return JobStatus("ended", nodes, "COMPLETED", ended_by="completion")
        found = super()._query([self.allocation.job_id])
        self._statuses.update(found)  # a second query tells a preemption from a requeue
        (whole,) = found.values()
        if whole.state == "ended" and whole.ended_by is not None:
            return replace(whole, nodes=nodes)  # for example its time limit
        preempted = whole.ended_by == "preemption"
        if preempted or (whole.state == "running" and whole.reason is not None):  # it is ending
            return JobStatus("running", nodes, whole.reason)
        text = f"FAILED, exit code {code}" if code else "FAILED"
        return JobStatus("ended", nodes, text, ended_by="failure")

    def _signal(self, name: str) -> None:
        outage = Outage(NAME, limit_s=CANCEL_LIMIT_S, hint="cancel again when SLURM answers")
        if steps := patiently(self._steps, outage):
            scancel(f"--signal={name}", *steps)

    def _steps(self) -> list[str]:
        """Return the ids of this run's steps in the allocation."""
        return [step for step, _ in self._steps_and_nodes()]

    def _busy_nodes(self) -> list[str]:
        """Return the nodes with steps of this run, which retries would have to wait for."""
        return [node for _, nodes in self._steps_and_nodes() for node in expand_nodes(nodes)]

    def _steps_and_nodes(self) -> list[tuple[str, str]]:
        job = self.allocation.job_id
        command = ["squeue", "--steps", "--noheader", f"--jobs={job}", "--format=%i|%N|%j"]
        done = run_command(command)
        if done.returncode != 0:
            raise_if_unavailable("squeue", done.stderr)
        listed = (line.strip().split("|", 2) for line in done.stdout.splitlines())
        prefix = step_name(self._folder)
        return [(step, nodes) for step, nodes, name in listed if name.startswith(prefix)]

    def _lock(self, script: str) -> Path:
        return self._folder / f"{script}.lock"


def slurm_scheduler(folder: Path) -> SlurmScheduler:
    """Return a scheduler for the allocation that this process runs in, or else SLURM's queue."""
    allocation = current_allocation()
    return SlurmScheduler() if allocation is None else AllocationScheduler(allocation, folder)


def scheduler_of_run(folder: RunFolder, jobs: Sequence[int]) -> SlurmScheduler:
    """Return the scheduler that the jobs of a run were submitted to.

    Jobs that are not submitted yet go to the current allocation if there is one, or to the queue.
    """
    known = [
        record for record in (read_submission(folder, job) for job in jobs) if record is not None
    ]
    intended = {intent.scheduler for intent in read_intents(folder)}
    for label in {*intended, *(record.scheduler for record in known)}:
        if not label.startswith(_LABEL):
            continue
        allocation = running_allocation(label.removeprefix(_LABEL))
        if allocation is not None:
            return AllocationScheduler(allocation, folder.path)
    if current_allocation() is not None and (NAME in intended or _any_queued(known)):
        return SlurmScheduler()
    return slurm_scheduler(folder.path)


def running_allocation(job: str) -> Allocation | None:
    """Return the allocation with this job id; None if it has ended."""
    command = ["squeue", "--noheader", "--states=RUNNING", f"--jobs={job}", "--format=%N"]
    done = query(command)
    nodes = tuple(expand_nodes(done.stdout.strip())) if done.returncode == 0 else ()
    return Allocation(job, nodes) if nodes else None


def _any_queued(known: Sequence[Submitted]) -> bool:
    ids = sorted({record.id for record in known if record.scheduler == NAME})
    return any(status.state != "ended" for status in SlurmScheduler().look(ids).values())
