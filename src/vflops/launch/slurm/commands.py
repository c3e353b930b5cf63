"""Runs SLURM's commands, and turns their failures into errors."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from vflops.errors import RunFailed, UsageError
from vflops.launch.scheduler import last_line
from vflops.launch.slurm.outage import CANCEL_LIMIT_S, Outage, SchedulerUnavailable, patiently

NO_SLURM = "establish a configuration source"
"""A part of what SLURM's commands print on a machine that is not in a cluster."""
NO_SLURM_HINT = "this machine is not a login node of a SLURM cluster, or SLURM_CONF is not set"
_NO_ANSWER = "did not answer within"
_NO_CONTACT = "contact slurm controller"
"""A part of what SLURM's commands print if slurmctld is not running."""
_UNCERTAIN = ("timed out", "Unknown error", _NO_ANSWER)
"""Messages after which a request may or may not have been processed."""
_GONE = "Invalid job id"
"""A part of what scancel prints about a job that has ended, and also (in SLURM 22.05) about a step
that it has signalled."""
_TIMEOUT_S, _CANCEL_TIMEOUT_S = 60.0, 30.0
_SETTLE_S = 60.0
"""After how long a signal that may have arrived is repeated: a second one within the time that
ranks have to write a checkpoint would kill them before it is written."""


def run_command(
    command: Sequence[str], timeout_s: float = _TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    """Run one of SLURM's commands; if it cannot run or takes too long, the exit code says so."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        message = f"{command[0]} {_NO_ANSWER} {timeout_s:g} s"
        return subprocess.CompletedProcess(command, 1, "", message)
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", f"{command[0]} is not installed here")
    except OSError as error:
        message = f"{command[0]} cannot be started: {error.strerror or error}"
        return subprocess.CompletedProcess(command, 126, "", message)


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
        lines = [line for line in done.stderr.splitlines() if _GONE not in line]
        if done.returncode != 0 and lines:
            raise_if_unavailable("scancel", "\n".join(lines))
            raise RunFailed(f"scancel: {last_line(lines[-1])}", hint="cancel again")

    hint = "the jobs may still run: cancel them with vflops cancel RUN when SLURM answers"
    settle_s = _SETTLE_S if signals else 0.0
    patiently(ask, Outage("slurm", limit_s=CANCEL_LIMIT_S, settle_s=settle_s, hint=hint))


def raise_if_unavailable(command: str, output: str) -> None:
    """Raise SchedulerUnavailable if the output of a failed command says so."""
    if _NO_CONTACT in output or any(text in output for text in _UNCERTAIN):
        raise SchedulerUnavailable(
            f"{command}: {last_line(output)}", may_have_succeeded=_NO_CONTACT not in output
        )


def command_failed(command: str, output: str) -> RunFailed | UsageError:
    """Return the error for a command that failed with this output."""
    message = f"{command}: {last_line(output)}"
    if NO_SLURM in output:
        return UsageError(message, hint=NO_SLURM_HINT)
    return RunFailed(message, hint="check that the scheduler is up, then try again")


def partition_hint() -> str:
    """Return a hint that lists the partitions."""
    names = sorted(set(run_command(["sinfo", "--noheader", "-o", "%R"]).stdout.split()))
    return f"set partition in site.toml to one of: {', '.join(names)} (sinfo lists them)"
