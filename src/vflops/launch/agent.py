"""One job's part on a node, as a process: ``python -m vflops.launch.agent RUN JOB``.

Whoever starts it may die: it goes on, and holds the job's lock as long as it lives, so that no
second one runs the same job. On one machine its cores are those that ``VFLOPS_CORES`` names; in a
scheduler's step of several nodes each has an agent, and the first one leads.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from vflops.bagging.staging import stage_attempt
from vflops.errors import VflopsError
from vflops.launch.job import run_job
from vflops.launch.script import LOCAL_PATH
from vflops.launch.team import CORES, Team
from vflops.record.folder import RunFolder
from vflops.record.lock import held
from vflops.record.training import JobRecord


def main(run: str, job: str) -> int:
    """Run one attempt at the job; the exit code."""
    if CORES in os.environ:
        os.sched_setaffinity(0, {int(core) for core in os.environ[CORES].split(",")})
    folder = RunFolder.open(Path(run))
    record = JobRecord.read(folder.job_file(int(job)))
    team = Team.of()
    try:
        with held(folder.job_lock(record.job), folder.path) if team.leads else nullcontext():
            stage = partial(stage_attempt, folder, record, os.environ.get(LOCAL_PATH))
            run_job(folder, record, lambda kind, data: None, team, stage)
    except VflopsError as error:
        print(error.message, error.cure or "", file=sys.stderr, sep="\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
