"""Runs SLURM's commands, and turns their failures into errors."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from vflops.errors import RunFailed, UsageError
from vflops.launch.scheduler import last_line

NO_SLURM = "establish a configuration source"
"""A part of what SLURM's commands print on a machine that is not in a cluster."""
NO_SLURM_HINT = "this machine is not a login node of a SLURM cluster, or SLURM_CONF is not set"
NO_ANSWER = "did not answer within"
_TIMEOUT_S = 60.0


def run_command(
    command: Sequence[str], timeout_s: float = _TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    """Run one of SLURM's commands; if it cannot run or takes too long, the exit code says so."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        message = f"{command[0]} {NO_ANSWER} {timeout_s:g} s"
        return subprocess.CompletedProcess(command, 1, "", message)
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", f"{command[0]} is not installed here")
    except OSError as error:
        message = f"{command[0]} cannot be started: {error.strerror or error}"
        return subprocess.CompletedProcess(command, 126, "", message)


def scancel(*arguments: str) -> None:
    """Cancel or signal jobs and steps; those that have already ended are ignored."""
    done = run_command(["scancel", "--quiet", *arguments])
    if done.returncode != 0 and done.stderr.strip():
        raise RunFailed(f"scancel: {last_line(done.stderr)}", hint="cancel again")


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
