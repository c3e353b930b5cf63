"""Runs SLURM's commands, and turns what they and its daemons print into types and errors."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Literal

from vflops.errors import RunFailed, UsageError
from vflops.launch.scheduler import SchedulerUnavailable, last_line
from vflops.launch.slurm.outage import CANCEL_LIMIT_S, Outage, patiently

Complaint = Literal["no contact", "no answer", "no cluster", "no job", "account", "partition"]
"""``no contact``: slurmctld is not running; ``no answer``: the request may or may not have been
processed; ``no cluster``: this machine is not in one; ``no job``: the job has ended or, in SLURM
22.05, scancel has signalled a step; ``account``, ``partition``: the user cannot use the one given.
"""

NO_SLURM_HINT = "this machine is not a login node of a SLURM cluster, or SLURM_CONF is not set"
UNUSABLE_STATE = r"^(down|drain|error|fail)|\*$"
"""Matches the states of nodes, as sinfo prints them, on which nothing should be started."""
_COMPLAINTS: dict[str, Complaint] = {
    "contact slurm controller": "no contact",
    "timed out": "no answer",
    "Unknown error": "no answer",
    "establish a configuration source": "no cluster",
    "Invalid job id": "no job",
    "Invalid account": "account",
    "partition": "partition",
}
"""Parts of what SLURM's commands print; the first one that is found counts."""
_STEP_ERRORS = ("srun: error: ", "slurmstepd: error: ")
_TIMEOUT_S, _CANCEL_TIMEOUT_S = 60.0, 30.0
_SETTLE_S = 60.0
"""After how long a signal that may have arrived is repeated: a second one within the time that
ranks have to write a checkpoint would kill them before it is written."""


def complaint(output: str) -> Complaint | None:
    """Return what the output of a failed command complains about, if that is known."""
    return next((kind for text, kind in _COMPLAINTS.items() if text in output), None)


def step_error(output: bytes) -> str | None:
    """Return the first error of srun or of a node's daemon in the output of one step."""
    lines = output.decode(errors="replace").splitlines()
    return next((line for line in lines if line.startswith(_STEP_ERRORS)), None)


def run_command(
    command: Sequence[str], timeout_s: float = _TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    """Run one of SLURM's commands; if it cannot run, the exit code says so.

    Raise SchedulerUnavailable if it does not end in time.
    """
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        message = f"{command[0]} did not answer within {timeout_s:g} s"
        raise SchedulerUnavailable(message, may_have_succeeded=True) from error
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", f"{command[0]} is not installed here")
    except OSError as error:
        message = f"{command[0]} cannot be started: {error.strerror or error}"
        return subprocess.CompletedProcess(command, 126, "", message)


def listing(command: Sequence[str]) -> list[str]:
    """Return the lines that a command prints; none if it fails or does not end in time."""
    try:
        done = run_command(command)
    except SchedulerUnavailable:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def query(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command that changes nothing; if slurmctld does not answer, wait for it."""

    def ask() -> subprocess.CompletedProcess[str]:
        done = run_command(command)
        if done.returncode != 0:
            raise_if_unavailable(command[0], done.stderr)
        return done

    hint = f"try again when SLURM answers: {command[0]}"
    return patiently(ask, Outage("slurm", hint=hint))


def scancel(*arguments: str) -> None:
    """Cancel or signal jobs and steps; those that have already ended are ignored.

    If slurmctld does not answer, wait for it.
    """
    signals = any(argument.startswith("--signal") for argument in arguments)

    def ask() -> None:
        done = run_command(["scancel", "--quiet", *arguments], _CANCEL_TIMEOUT_S)
        lines = [line for line in done.stderr.splitlines() if complaint(line) != "no job"]
        if done.returncode != 0 and lines:
            raise_if_unavailable("scancel", "\n".join(lines))
            raise RunFailed(f"scancel: {last_line(lines[-1])}", hint="cancel again")

    hint = "the jobs may still run: cancel them with vflops cancel RUN when SLURM answers"
    settle_s = _SETTLE_S if signals else 0.0
    patiently(ask, Outage("slurm", limit_s=CANCEL_LIMIT_S, settle_s=settle_s, hint=hint))


def raise_if_unavailable(command: str, output: str) -> None:
    """Raise SchedulerUnavailable if the output of a failed command says so."""
    kind = complaint(output)
    if kind in ("no contact", "no answer"):
        raise SchedulerUnavailable(
            f"{command}: {last_line(output)}", may_have_succeeded=kind == "no answer"
        )


def command_failed(command: str, output: str) -> RunFailed | UsageError:
    """Return the error for a command that failed with this output."""
    message = f"{command}: {last_line(output)}"
    if complaint(output) == "no cluster":
        return UsageError(message, hint=NO_SLURM_HINT)
    return RunFailed(message, hint="check that the scheduler is up, then try again")


def partition_hint() -> str:
    """Return a hint that lists the partitions."""
    names = sorted(set(listing(["sinfo", "--noheader", "-o", "%R"])))
    return f"set partition in site.toml to one of: {', '.join(names)} (sinfo lists them)"
