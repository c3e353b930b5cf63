"""The script of a job: plain bash with the site's facts, that also runs by hand."""

from __future__ import annotations

import shlex
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vflops.errors import UsageError
from vflops.launch.site import ContainerSettings, SiteSettings

SchedulerName = Literal["slurm", "pbs", "lsf", "flux"]

AGENT = ("-P", "-m", "vflops.launch.agent")
"""What starts a node's ranks; -P: a user's queue.py must not stand in for Python's."""
LOCAL_PATH = "VFLOPS_LOCAL_PATH"
"""The variable that tells the agents where the node's own storage is."""
UNSEEN = "the node does not see the run folder"
"""What an agent says on a node whose file system is not the shared one."""
KILLED = "was killed by"
"""What is said of a rank that did not end by itself."""
ELSEWHERE = "another agent is at it"
"""What an agent says that finds its job in the hands of another."""
ELSEWHERE_CODE = 4
"""What it ends with; it is not tried again."""
STOP = ".stop"
"""The suffix of the file beside a script that keeps it from trying a job again."""

_WARNING_S = 90
"""How long before the time limit a job is told to write a checkpoint and stop."""


_TRIED = """\
tried() {  # a step as above, and how often it may be tried
  local try code
  for ((try = 1; ; try++)); do
    step "$@"
    code=$?
    # 0: it ended; 1: it was told to stop, or srun could not start it; 2: wrong use; 4: it runs.
    ((code > 2 && code != 4)) || return $code
    ((try < $5)) || return $code
    echo "job $1 died with code $code and is tried again"
    sleep $((2 ** (try - 1)))
    [ ! -e "$stop" ] || return $code
  done
}""".splitlines()
"""Bash that tries a step again where it died."""


@dataclass(frozen=True)
class Request:
    """What is asked of the scheduler: a script, and nodes with room for equal tasks."""

    name: str
    script: Path
    nodes: int
    tasks_per_node: int
    cores_per_task: int
    gpus_per_task: int
    output: Path
    site: SiteSettings
    exclude: tuple[str, ...] = ()
    """Nodes that the job must not get."""


@dataclass(frozen=True)
class Step:
    """One job among several of an allocation, on nodes counted from the allocation's first."""

    job: int
    first_node: int
    nodes: int
    tasks_per_node: int
    """Its ranks on each of them; other steps may share a node."""
    tries: int = 1
    """How often it may die here."""


def job_script(request: Request, run: Path, job: int, scheduler: SchedulerName = "slurm") -> str:
    """The script of a job that is submitted on its own: one agent a node."""
    return _script(request, scheduler, [_agents(request, scheduler, run, job)])


def allocation_script(
    request: Request, run: Path, steps: Sequence[Step], program: Sequence[str] = AGENT
) -> str:
    """The script of all jobs in one allocation, started together; SLURM's only.

    ``program``: what Python is told to run in each step, with the run folder and the job's number.

    A step that dies is tried again while the allocation lives, until a file with the suffix
    ``STOP`` lies beside the script. It runs as well in an allocation that is held already:
    ``bash SCRIPT``.
    """
    last = max(step.first_node + step.nodes for step in steps)
    if last > request.nodes:
        raise UsageError(
            f"the jobs need {last} nodes and the allocation has {request.nodes}",
            hint="ask for more nodes, or run fewer models",
        )
    site, cores, gpus = request.site, request.cores_per_task, request.gpus_per_task
    # A step takes all memory of its node for itself where the job asked for --mem, unless told 0.
    options = "--exact --mem=0 --kill-on-bad-exit=1"
    parts = [
        f'srun --job-name={_quoted(step_name(run))}"$1"',
        '--nodelist="$(IFS=,; echo "${nodes[*]:$2:$3}")"',
        '--nodes="$3" --ntasks="$3" --ntasks-per-node=1',
        f"--cpus-per-task=$(($4 * {cores}))",
        *([f"--gpus-per-node=$(($4 * {gpus}))"] if gpus else []),
        options,
        _command(site, run, '"$1"', gpus > 0, "slurm", program),
    ]
    body = [
        'mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        f"stop={_quoted(request.script.with_suffix(STOP))}",
        "",
        "step() {  # a job, the number of its first node, its nodes, its ranks on each",
        "  " + " \\\n    ".join(parts),
        "}",
        *_TRIED,
        *(
            f"tried {each.job} {each.first_node} {each.nodes} {each.tasks_per_node} {each.tries} "
            "& all+=($!)"
            for each in steps
        ),
        "",
        "failed=0",
        'for each in "${all[@]}"; do wait "$each" || failed=1; done',
        'exit "$failed"',
    ]
    # A node that fails must not take the jobs on other nodes with it.
    return _script(request, "slurm", body, more=("--no-kill",))


def said(node: str, job: int) -> str:
    """What an agent's last words begin with, in an output that jobs share."""
    return f"{node}: job {job}: "


def step_name(run: Path) -> str:
    """What the names of a run's steps begin with, and those of no other run's."""
    return f"{run.name}-{zlib.crc32(str(run.resolve()).encode()):08x}."


def _script(
    request: Request, scheduler: SchedulerName, body: Sequence[str], more: Sequence[str] = ()
) -> str:
    lines = ["#!/bin/bash"]
    if scheduler == "slurm":  # psij writes the other schedulers' own
        # The site's come last, so that they win.
        options = (*_directives(request), *more, *request.site.directives)
        lines += [f"#SBATCH {option}" for option in options]
    lines += ["", *_setup(request.site), *body, ""]
    return "\n".join(lines)


def _directives(request: Request) -> list[str]:
    """The options of sbatch."""
    site, tasks = request.site, request.tasks_per_node
    options: dict[str, object] = {
        "job-name": request.name,
        "output": request.output,
        "open-mode": "append",  # a job that was put back in the queue adds to its output
        "nodes": request.nodes,
        "ntasks-per-node": tasks,
        "cpus-per-task": request.cores_per_task,
        "gpus-per-node": tasks * request.gpus_per_task or None,
        "account": site.account,
        "partition": site.partition,
        "time": _time(site.time_limit_s),
        "exclude": ",".join(request.exclude) or None,
    }
    if (site.time_limit_s or 0) > 10 * _WARNING_S:
        options["signal"] = f"USR1@{_WARNING_S}"
    return [f"--{key}={_quoted(value)}" for key, value in options.items() if value is not None]


def _time(seconds: int | None) -> str | None:
    """``hours:minutes:seconds``: SLURM takes two numbers for minutes and seconds."""
    if seconds is None:
        return None
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _quoted(value: object) -> str:
    return shlex.quote(str(value))


def _setup(site: SiteSettings) -> list[str]:
    lines = []
    if site.modules:
        lines.append("type module >/dev/null 2>&1 || source /etc/profile")
        lines += [f"module load {_quoted(module)} || exit" for module in site.modules]
    variables = dict(site.environment)
    if site.local_path is not None:
        variables[LOCAL_PATH] = site.local_path
    lines += [f"export {name}={_expanding(value)}" for name, value in variables.items()]
    return [*lines, ""] if lines else []


def _expanding(text: str) -> str:
    """In double quotes: variables of the node stand for their values, nothing else is special."""
    for character in '\\"`':
        text = text.replace(character, "\\" + character)
    return f'"{text}"'


def _agents(request: Request, scheduler: SchedulerName, run: Path, job: int) -> str:
    nodes, tasks = request.nodes, request.tasks_per_node
    command = _command(request.site, run, str(job), request.gpus_per_task > 0, scheduler)
    if scheduler != "slurm":
        if nodes > 1:  # an agent learns from SLURM's step which of the nodes it is on
            raise UsageError(
                f"a job of {nodes} nodes cannot be started on {scheduler}",
                hint="fewer ranks a model, so that it fits on one node, or --on slurm",
            )
        return f"exec {command}"
    gpus = tasks * request.gpus_per_task
    parts = [
        f"srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1",
        f"--cpus-per-task={tasks * request.cores_per_task}",
        *([f"--gpus-per-node={gpus}"] if gpus else []),
        "--kill-on-bad-exit=1",
        command,
    ]
    return " \\\n  ".join(parts)


def _command(
    site: SiteSettings,
    run: Path,
    job: str,
    gpus: bool,
    scheduler: str,
    program: Sequence[str] = AGENT,
) -> str:
    """The command line of a node, in the site's container."""
    command = f"{_expanding(site.interpreter)} {' '.join(program)} {_quoted(run)} {job}"
    if site.container is None:
        return command
    mounts = [str(run), *site.container.mounts]
    mounts += [site.local_path] if site.local_path is not None else []
    wrapped = _wrapped(site.container, mounts, gpus, [*site.environment])
    if site.container.runtime == "pyxis" and scheduler != "slurm":
        raise UsageError(
            f"the container runtime pyxis is a part of SLURM, and the scheduler is {scheduler}",
            hint="use apptainer, docker or podman",
        )
    return f"{wrapped} {command}"


def _wrapped(
    container: ContainerSettings, mounts: Sequence[str], gpus: bool, environment: Sequence[str]
) -> str:
    image = _expanding(container.image)
    binds = [_expanding(f"{path}:{path}") for path in mounts]
    if container.runtime == "pyxis":  # options of srun
        joined = _expanding(",".join(f"{path}:{path}" for path in mounts))
        return f"--container-image={image} --container-mounts={joined}"
    if container.runtime == "apptainer":
        return " ".join(
            ["apptainer exec", *(["--nv"] if gpus else []), *(f"--bind {b}" for b in binds), image]
        )
    # What the agents read of their step; a container starts with none of it.
    seen = [f"SLURM_{name}" for name in "JOB_ID STEP_ID RESTART_COUNT NODEID".split()]
    seen += ["SLURM_STEP_NUM_NODES", "SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES", LOCAL_PATH]
    cards = {"docker": "--gpus all", "podman": "--device nvidia.com/gpu=all"}
    user = {"docker": '--user "$(id -u):$(id -g)"', "podman": "--userns=keep-id"}
    return " ".join(
        [
            f"{container.runtime} run --rm --init --network=host --ipc=host",
            user[container.runtime],
            *([cards[container.runtime]] if gpus else []),
            *(f"--volume {bind}" for bind in binds),
            *(f"--env {name}" for name in (*seen, *environment)),
            image,
        ]
    )
