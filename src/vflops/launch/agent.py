"""The process that runs a job's ranks on one node: ``python -m vflops.launch.agent RUN JOB``.

It holds the job's lock while it runs, so that no second agent runs the same job. On one machine it
outlives the process that started it. ``VFLOPS_CORES`` names its cores; if a job runs on several
nodes, each node has an agent, and the first one leads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

from vflops.data.staging import stage_attempt
from vflops.errors import Interrupted, VflopsError
from vflops.launch import core_binding
from vflops.launch.agent_report import AgentReport, Outcome
from vflops.launch.attempt import RankKilled, TimeLimitNear, run_job
from vflops.launch.core_binding import Topology
from vflops.launch.hang_watch import RankHung
from vflops.launch.job_script import (
    ELSEWHERE_CODE,
    HUNG,
    LOCAL_PATH,
)
from vflops.launch.node_group import CORES, GROUP, NodeGroup
from vflops.launch.parent_death import PARENT, die_with
from vflops.launch.rehearsal import THREADS, rehearsal_variables
from vflops.launch.waiting import UnseenFolder, node_name, open_run
from vflops.machine.system.cpu_share import usable_cores
from vflops.machine.system.openmp_waiting import set_waiting_policy
from vflops.record.files.lock import InUse, locked
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord

_STOPPED = 1
"""The exit code of an agent that was stopped.

It is smaller than that of an agent that died: if one of several nodes dies, SLURM stops the others,
and the largest code becomes that of the step.
"""


def main(run: str, job: str) -> int:
    """Run one attempt at the job and return the exit code."""
    set_waiting_policy()
    if PARENT in os.environ:  # a node that joined the run; the nodes would not agree about its jobs
        die_with(int(os.environ[PARENT]))
    if CORES in os.environ:
        os.sched_setaffinity(0, {int(core) for core in os.environ[CORES].split(",")})
    try:
        folder = open_run(Path(run))
        record = folder.effective_job(int(job))
        group = NodeGroup.of()
        if folder.ended(record.job):  # a copy that the scheduler started late
            return 0
        with locked(folder.job_lock(record.job), folder.path) if group.leads else nullcontext():
            if group.leads:
                (folder.job_file(record.job).parent / HUNG).unlink(missing_ok=True)
            run_job(
                folder,
                record,
                lambda kind, data: None,
                group,
                partial(_prepare, folder, record),
                "" if CORES in os.environ and GROUP not in os.environ else node_name(),
            )
    except Interrupted as error:
        if folder.ended(record.job):  # it was stopped too late
            return 0
        _report(job, "limit" if isinstance(error, TimeLimitNear) else "stopped", error)
        return _STOPPED
    except InUse as error:
        _report(job, "elsewhere", error)
        return ELSEWHERE_CODE
    except VflopsError as error:
        kinds: dict[type[VflopsError], Outcome] = {
            RankHung: "hung",
            RankKilled: "killed",
            UnseenFolder: "unseen",
        }
        _report(job, kinds.get(type(error), "failed"), error)
        if isinstance(error, RankHung):
            with suppress(OSError):
                (Path(run) / "jobs" / job / HUNG).touch()
        return error.exit_code
    return 0


def _report(job: str, outcome: Outcome, error: VflopsError) -> None:
    report = AgentReport(
        node=node_name(), job=int(job), outcome=outcome, message=error.message, hint=error.hint
    )
    print(report.model_dump_json(), file=sys.stderr)


def _prepare(
    folder: RunFolder, record: JobRecord, attempt: Path, node: int, nodes: int
) -> Mapping[str, str]:
    """Stage the data and assign cores; return the environment variables of this node's ranks."""
    local = os.environ.get(LOCAL_PATH)
    variables = dict(stage_attempt(folder, record, local, attempt, node, nodes))
    launch, ranks = folder.record.settings.launch, record.ranks // nodes
    if launch.rehearse:
        alone = CORES in os.environ  # no other job has these cores, or all share them
        shared = rehearsal_variables(launch, ranks, alone=alone)
        words = f"not bound: a rehearsal, with {shared[THREADS]} threads a rank"
        print(f"{node_name()}: ranks of job {record.job} {words}", file=sys.stderr, flush=True)
        variables |= shared
    elif launch.bind:
        bound, words = core_binding.variables(Topology.read(), usable_cores(), ranks)
        print(f"{node_name()}: ranks of job {record.job} {words}", file=sys.stderr, flush=True)
        variables |= bound
    return variables


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
