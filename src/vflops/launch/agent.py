"""One job's part on a node, as a process: ``python -m vflops.launch.agent RUN JOB``.

Whoever starts it may die: it goes on, and holds the job's lock as long as it lives, so that no
second one runs the same job. On one machine its cores are those that ``VFLOPS_CORES`` names; in a
scheduler's step of several nodes each has an agent, and the first one leads.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from vflops.data.staging import stage_attempt
from vflops.errors import Interrupted, UsageError, VflopsError
from vflops.launch import core_binding
from vflops.launch.attempt import run_job
from vflops.launch.core_binding import Topology
from vflops.launch.job_script import ELSEWHERE, ELSEWHERE_CODE, LOCAL_PATH, UNSEEN, said
from vflops.launch.node_group import CORES, Team
from vflops.record.effective_job import running_record
from vflops.record.files.lock import InUse, locked
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord

_STOPPED = 1
"""Less than the code of an agent that died: where one of several nodes does, SLURM stops the rest,
and gives the largest code as that of the step."""
_LATE_S = 5.0
"""A shared file system may show a new folder late."""


def main(run: str, job: str) -> int:
    """Run one attempt at the job; the exit code."""
    if CORES in os.environ:
        os.sched_setaffinity(0, {int(core) for core in os.environ[CORES].split(",")})
    try:
        folder = _open(Path(run))
        record = running_record(folder, int(job))
        team = Team.of()
        if folder.ended(record.job):  # a copy that the scheduler started late
            return 0
        with locked(folder.job_lock(record.job), folder.path) if team.leads else nullcontext():
            run_job(
                folder, record, lambda kind, data: None, team, partial(_prepare, folder, record)
            )
    except Interrupted as error:
        print(f"{_name()}: job {job} was {error.message}", file=sys.stderr)
        return _STOPPED
    except InUse as error:
        print(f"{said(_name(), int(job))}{ELSEWHERE}: {error.message}", file=sys.stderr)
        return ELSEWHERE_CODE
    except VflopsError as error:
        print(said(_name(), int(job)) + error.message, file=sys.stderr)
        print(error.hint or "", file=sys.stderr)
        return error.exit_code
    return 0


def _prepare(
    folder: RunFolder, record: JobRecord, place: Path, node: int, nodes: int
) -> Mapping[str, str]:
    """Stage the data and share the cores out; what the ranks of this node are told."""
    local = os.environ.get(LOCAL_PATH)
    told = dict(stage_attempt(folder, record, local, place, node, nodes))
    if folder.record.settings.launch.bind:
        cores = os.sched_getaffinity(0)
        bound, words = core_binding.variables(Topology.read(), cores, record.ranks // nodes)
        print(f"{_name()}: ranks of job {record.job} {words}", file=sys.stderr, flush=True)
        told |= bound
    return told


def _open(path: Path) -> RunFolder:
    """The run; a node that does not have it says so in words that its controller knows again."""
    end_s = time.monotonic() + _LATE_S
    while not (path / "run.json").is_file():
        if time.monotonic() > end_s:
            raise UsageError(
                f"{UNSEEN} {path}",
                hint="runs must be on a file system that all nodes share: name one with --out",
            )
        time.sleep(0.2)
    return RunFolder.open(path)


def _name() -> str:
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
