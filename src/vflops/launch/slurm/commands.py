"""The commands of SLURM: their answers, and what to do where there is none."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence

from vflops.errors import RunFailed, UsageError

NO_SLURM = "establish a configuration source"
"""What SLURM's commands say of a machine that they do not know the cluster of."""
NO_SLURM_CURE = "this machine is no login node of a SLURM, or SLURM_CONF is not set"
_TIMEOUT_S = 60.0


def scancel(*arguments: str) -> None:
    """End or signal jobs and steps; those that are gone are no fault."""
    done = ask(["scancel", "--quiet", *arguments])
    if done.returncode != 0 and done.stderr.strip():
        raise RunFailed(f"scancel: {last_line(done.stderr)}", hint="cancel again")


def no_answer(command: str, words: str) -> RunFailed | UsageError:
    """The error for a command that failed with ``words``."""
    message = f"{command}: {last_line(words)}"
    if NO_SLURM in words:
        return UsageError(message, hint=NO_SLURM_CURE)
    return RunFailed(message, hint="is the scheduler up? then try again")


def last_line(text: str) -> str:
    """The words of a failed command that matter."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("Try ")]
    return re.sub(
        r"^\w+: (?:error|fatal): (Batch job submission failed: )?", "", lines[-1] if lines else ""
    )


def ask(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """The answer of one of the scheduler's commands; none in time is a failure."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        words = f"{command[0]} gave no answer in {_TIMEOUT_S:g} s"
        return subprocess.CompletedProcess(command, 1, "", words)
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", f"no {command[0]} here")
    except OSError as error:
        words = f"{command[0]} cannot be started: {error.strerror or error}"
        return subprocess.CompletedProcess(command, 126, "", words)
