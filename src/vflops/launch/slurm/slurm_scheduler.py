"""SLURM's queue: ``sbatch`` submits, ``squeue`` reports on all jobs, ``scancel`` ends them."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from vflops.errors import UsageError
from vflops.launch.job_script import Request
from vflops.launch.scheduler import (
    EndedBy,
    JobStatus,
    Scheduler,
    State,
    Unreachable,
    last_line,
    require_command,
)
from vflops.launch.slurm.commands import (
    NO_SLURM_HINT,
    command_failed,
    complaint,
    partition_hint,
    raise_if_unavailable,
    run_command,
    scancel,
)
from vflops.launch.slurm.slurm_nodes import Allocation, expand_nodes, unreachable_nodes

NAME = "slurm"
"""The name of the back end, and the label of jobs that were submitted to the queue."""
_SUBMIT = "sbatch"
_SUBMIT_LIMIT_S = 600.0
_JOBS_PER_QUERY = 1000
"""The largest number of jobs in one query, as the length of a command line is limited."""

_ENDED = frozenset(
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY REVOKED TIMEOUT".split()
)
_ENDED_BY: dict[str, EndedBy] = {
    "CANCELLED": "cancellation",
    "COMPLETED": "completion",
    "DEADLINE": "cancellation",
    "FAILED": "failure",
    "OUT_OF_MEMORY": "memory",
    "PREEMPTED": "preemption",
    "REVOKED": "cancellation",
    "TIMEOUT": "time limit",
}
_WAITING = frozenset(
    "CONFIGURING PENDING REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT".split()
)
_FIELDS = ("JobArrayID", "State", "NodeList", "exit_code", "RestartCnt", "Reason")


class SlurmScheduler(Scheduler):
    """SLURM's queue."""

    allocation: Allocation | None = None
    """The allocation that the user already has and that scripts run in, instead of the queue."""

    def __init__(self) -> None:
        super().__init__(NAME, _SUBMIT)

    def submit(self, request: Request) -> str:
        """Submit the request's script and return SLURM's id of the job."""
        self.expect_change()
        done = run_command([_SUBMIT, "--parsable", str(request.script)], _SUBMIT_LIMIT_S)
        if done.returncode != 0:
            output = "\n".join(filter(None, (done.stdout, done.stderr)))
            raise_if_unavailable(_SUBMIT, output)
            raise _refusal(request, output)
        return done.stdout.strip().split(";")[0]  # a federation adds the cluster's name

    def find(self, name: str, intent: Path) -> str | None:
        """Return the id of the user's job with that name, even if it has just ended; else None."""
        user = ["--noheader", "--states=all", f"--user={os.getuid()}", f"--name={name}"]
        done = run_command(["squeue", *user, "--format=%i"])
        if done.returncode != 0:
            raise_if_unavailable("squeue", done.stderr)
            raise command_failed("squeue", done.stderr)
        return next(iter(done.stdout.split()), None)

    def cancel(self, ids: Sequence[str]) -> None:
        """End these jobs; those that have already ended are left alone."""
        if ids:
            self.expect_change()
            scancel(*ids)

    def stop(self, ids: Sequence[str]) -> None:
        """Ask these jobs to write a checkpoint and end; cancel those that are queued."""
        if ids:
            self.expect_change()
            scancel("--state=PENDING", *ids)
            # Signal only the agents; a cancellation would also kill them a little later.
            scancel("--state=RUNNING", "--signal=TERM", *ids)

    def unreachable_nodes(self, nodes: Collection[str]) -> dict[str, Unreachable]:
        """Return those of the nodes that are down or do not respond; none if SLURM is silent."""
        return unreachable_nodes(nodes)

    def _query(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        statuses: dict[str, JobStatus] = {}
        for first in range(0, len(ids), _JOBS_PER_QUERY):
            statuses |= self._squeue(ids[first : first + _JOBS_PER_QUERY])
        return statuses

    def _squeue(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        columns = ",".join(f"{field}:|" for field in _FIELDS)
        options = ["--noheader", "--states=all", f"--jobs={','.join(ids)}", "-O", columns]
        done = run_command(["squeue", *options])
        said = complaint(done.stderr)
        if done.returncode != 0 and said != "no job":
            if said == "no cluster" and not self._statuses:
                raise command_failed("squeue", done.stderr)
            unknown = JobStatus("waiting", (), last_line(done.stderr))
            return {job: self._statuses.get(job, unknown) for job in ids}
        listed = {}
        for line in done.stdout.splitlines():
            job, state, nodes, code, restarts, reason = line.split("|", len(_FIELDS) - 1)
            status = self._status(job, state, nodes, code, reason.rstrip("|"))
            listed[job] = replace(status, restarts=int(restarts or 0))
        gone = JobStatus("ended", (), "SLURM no longer knows the job")
        return {job: listed.get(job, gone) for job in ids}

    def _status(self, job: str, state: str, nodes: str, code: str, reason: str) -> JobStatus:
        text = state if reason in ("", "None") else f"{state}: {reason}"
        ended = state in _ENDED
        if state == "PREEMPTED":
            # If it was requeued, it is pending at the next query; otherwise it has ended.
            last = self._statuses.get(job)
            ended = last is not None and last.ended_by == "preemption"
        if ended:
            kind: State = "ended"
            text += _format_exit_code(code)
        else:
            kind = "waiting" if state in (*_WAITING, "PREEMPTED") else "running"
        message = None if state == "RUNNING" else text
        where, ended_by = tuple(expand_nodes(nodes)), _ENDED_BY.get(state)
        return JobStatus(kind, where, message, ended_by=ended_by)


def require_slurm() -> None:
    """Raise UsageError if SLURM is not installed on this machine."""
    require_command(_SUBMIT, NAME)


def _refusal(request: Request, output: str) -> UsageError:
    message = f"slurm refused {request.script}: {last_line(output)}"
    hint, kind = f"its options are in {request.script}, from site.toml", complaint(output)
    if kind == "no cluster":
        hint = NO_SLURM_HINT
    elif kind == "partition":
        hint = partition_hint()
        message += f" ({request.site.partition})" if request.site.partition else ""
    elif kind == "account":
        hint = "set account in site.toml to one of yours"
    return UsageError(message, hint=hint)


def _format_exit_code(code: str) -> str:
    """Return the signal or exit code in words, from a ``wait`` status or from ``code:signal``."""
    if ":" in code:
        exit_code, number = (int(part) for part in code.split(":")[:2])
    else:
        exit_code, number = divmod(int(code or 0), 256)
    return f", signal {number}" if number else f", exit code {exit_code}" if exit_code else ""
