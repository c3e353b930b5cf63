"""What every job script contains: the site's setup, and the command that starts a node's agent."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vflops.errors import UsageError
from vflops.launch.agent_report import AgentReport
from vflops.launch.site import ContainerSettings, SiteSettings
from vflops.launch.waiting import LATE_S, UnseenFolder
from vflops.python_start import module_options

AGENT = module_options("vflops.launch.agent")
"""What Python runs on a node."""
NODE_CHECK = module_options("vflops.launch.node_check")
"""What Python runs on each node before the first job, with the ranks of a job and of a node, and in
a preflight with the number of the node."""
PREFLIGHT = "preflight.sh"
"""The script in a preflight's folder; step ``k`` checks node ``k``."""
LOCAL_PATH = "VFLOPS_LOCAL_PATH"
"""The environment variable that gives the agents the path of the node's local storage."""
HUNG = "hung"
"""The file in a job's folder that says that a rank of its newest attempt hangs."""
ELSEWHERE_CODE = 4
"""The exit code of an agent whose job another one is running; it is not retried."""

_SEES = f"""\
for ((try = 0; try < {10 * LATE_S:g}; try++)); do
  [ ! -e "$1/run.json" ] || exit 0
  ls "$1" &>/dev/null  # drops what NFS caches as absent
  sleep 0.1
done
echo "${{2/@/$SLURMD_NODENAME}}" >&2
exit 2"""
"""Bash code that waits for a run folder, $1; if the node does not see it, it prints $2."""

_SPECIAL = r'[\\"`$]'
"""The characters that bash interprets within double quotes."""
_NOT_A_VARIABLE = r'[\\"`]|\$(?![A-Za-z_]|\{[A-Za-z_][A-Za-z0-9_]*\})'
"""The same, except for the beginning of a variable."""
_BACKSLASH = r"\\\g<0>"


@dataclass(frozen=True)
class Request:
    """A script to submit, and the nodes that it needs, with room for equal tasks."""

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
    checks_folder: bool = False
    """Whether nothing starts unless all nodes see the run folder."""
    measures: bool = False
    """Whether the nodes measure their ceilings before the first job."""
    limit_s: float | None = None
    """The time limit, whoever sets it; None if it is not known or there is none."""
    gpu_type: str | None = None
    memory_mb_per_task: int | None = None
    overlap: bool = False
    """Whether steps share their nodes: those of a rehearsal, each of which has all of a node."""


@dataclass(frozen=True)
class Step:
    """One job among several in an allocation, on nodes counted from the allocation's first."""

    job: int
    first_node: int
    nodes: int
    tasks_per_node: int
    """The job's ranks on each of its nodes; other steps may use the same nodes."""
    tries: int = 1
    """How many times it is tried in this allocation."""


def script_text(site: SiteSettings, directives: Sequence[str], body: Sequence[str]) -> str:
    """Return a bash script: the scheduler's directives, the site's setup, and ``body``."""
    return "\n".join(["#!/bin/bash", *directives, "", *_setup(site), *body, ""])


def node_command(
    site: SiteSettings, run: Path, job: str, gpus: bool, program: Sequence[str] = AGENT
) -> str:
    """Return the command line that runs ``program`` on a node, in the site's container if any.

    ``job`` is bash code, inserted as it is. Raise UsageError if ``run`` has a line break, which
    would end a directive of the scheduler.
    """
    if re.search(r"[\r\n]", str(run)):
        raise UsageError(
            f"the path of the run folder has a line break: {str(run)!r}",
            hint="put runs in another folder: choose it with --out",
        )
    command = f"{_expanding(site.interpreter)} {' '.join(program)} {quoted(run)} {job}"
    if site.container is None:
        return command
    mounts = [_literal(str(run)), *map(_expanding, site.container.mounts)]
    mounts += [_expanding(site.local_path)] if site.local_path is not None else []
    return f"{_wrapped(site.container, mounts, gpus, [*site.environment])} {command}"


def ceilings_lines(start: str, request: Request, run: Path, ranks: int) -> list[str]:
    """Return bash code that prepares all nodes before the jobs; ``start`` runs a command on each.

    The script ends, with a report, if a node does not see the run folder: the others would wait for
    that node. Then the nodes measure their ceilings, for jobs of ``ranks`` ranks. If that fails,
    training starts without it; if it was stopped, nothing starts.
    """
    lines = _folder_lines(start, run) if request.checks_folder else []
    if not request.measures:
        return lines
    numbers = f"{ranks} {request.tasks_per_node}"
    command = node_command(request.site, run, numbers, request.gpus_per_task > 0, NODE_CHECK)
    return [
        *lines,
        f"{start}{command}",
        "code=$?  # 143: stopped",
        "((code != 143)) || exit 1",
        '((code == 0)) || echo "the ceilings of the nodes were not measured: exit code $code"',
    ]


def _folder_lines(start: str, run: Path) -> list[str]:
    unseen = AgentReport(node="@", outcome="unseen", message=UnseenFolder(run).message)
    report = quoted(unseen.model_dump_json(exclude_none=True))
    # In the user's own allocation, another step may run on the node, which would be waited for.
    return [
        f"{start}--overlap bash -c {quoted(_SEES)} bash {quoted(run)} \\\n  {report}",
        "(($? != 2)) || exit 2",
    ]


def step_log(script: Path, job: int, number: int = 1) -> Path:
    """Return the file with the output of a step of a script; ``number`` counts those of the job."""
    return steps_folder(script) / f"{job}-{number}.log"


def step_logs(script: Path, job: int) -> list[Path]:
    """Return the existing files of all steps of a job, in their order."""
    count = len(list(steps_folder(script).glob(f"{job}-*.log")))
    return [step_log(script, job, number) for number in range(1, count + 1)]


def steps_folder(script: Path) -> Path:
    """Return the folder with the output of the steps of a script, next to it."""
    return script.with_suffix(".steps")


def quoted(value: object) -> str:
    """Return the value as one literal word of bash."""
    return shlex.quote(str(value))


def _setup(site: SiteSettings) -> list[str]:
    lines = []
    if site.modules:
        lines.append("type module >/dev/null 2>&1 || source /etc/profile")
        lines += [f"module load {quoted(module)} || exit" for module in site.modules]
    variables = dict(site.environment)
    if site.local_path is not None:
        variables[LOCAL_PATH] = site.local_path
    lines += [f"export {name}={_expanding(value)}" for name, value in variables.items()]
    return [*lines, ""] if lines else []


def _expanding(text: str) -> str:
    """Return the text in double quotes: ``$NAME`` and ``${NAME}`` are expanded, nothing else is."""
    return f'"{re.sub(_NOT_A_VARIABLE, _BACKSLASH, text)}"'


def _literal(text: str) -> str:
    """Return the text in double quotes, with nothing expanded."""
    return f'"{re.sub(_SPECIAL, _BACKSLASH, text)}"'


def _wrapped(
    container: ContainerSettings, mounts: Sequence[str], gpus: bool, environment: Sequence[str]
) -> str:
    """Return the command of the container; ``mounts`` are paths in double quotes."""
    image = _expanding(container.image)
    binds = [f"{path[:-1]}:{path[1:]}" for path in mounts]
    if container.runtime == "pyxis":  # options of srun
        joined = '"' + ",".join(bind[1:-1] for bind in binds) + '"'
        return f"--container-image={image} --container-mounts={joined}"
    if container.runtime == "apptainer":
        return " ".join(
            ["apptainer exec", *(["--nv"] if gpus else []), *(f"--bind {b}" for b in binds), image]
        )
    if container.runtime == "charliecloud":
        return _charliecloud(image, mounts, binds)
    # The variables that agents read have to be passed to a container explicitly.
    passed = [f"SLURM_{name}" for name in "JOB_ID STEP_ID RESTART_COUNT NODEID".split()]
    passed += ["SLURM_STEP_NUM_NODES", "SLURMD_NODENAME", "SLURM_CPUS_PER_TASK", LOCAL_PATH]
    passed += ["SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE", "CUDA_VISIBLE_DEVICES"]
    return " ".join(
        [
            f"bash -c {quoted(_with_step_resources(container.runtime, gpus))} bash",
            f"{container.runtime} run --rm --init --network=host --ipc=host",
            _USER[container.runtime],
            *(f"--volume {bind}" for bind in binds),
            *(f"--env {name}" for name in (*passed, *environment)),
            image,
        ]
    )


_STEP_GPUS = """\
for gpu in ${CUDA_VISIBLE_DEVICES//,/ }; do
  case $gpu in
    GPU-*|MIG-*) ;;
    *) gpu=$(nvidia-smi --id="$gpu" --query-gpu=uuid --format=csv,noheader) || exit ;;
  esac
  gpus+=("$gpu")
done
export CUDA_VISIBLE_DEVICES=$(IFS=,; echo "${gpus[*]}")
"""
"""Bash code that reads the UUIDs of a step's GPUs: their numbers differ in a container."""

_STEP_OPTIONS = {
    "docker": """\
options+=(--cpuset-cpus "$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)")
[ ${#gpus[@]} = 0 ] || options+=(--gpus "\\"device=$CUDA_VISIBLE_DEVICES\\"")
""",
    "podman": 'for gpu in "${gpus[@]}"; do options+=(--device "nvidia.com/gpu=$gpu"); done\n',
}
"""Bash code that adds the options for a step's GPUs and cores.

A daemon starts Docker's containers, so that they are outside of the step; Podman's are inside.
"""


def _with_step_resources(runtime: str, gpus: bool) -> str:
    """Return bash code that starts a container, whose command follows, with what its step has."""
    code = "gpus=() options=()\n" + (_STEP_GPUS if gpus else "") + _STEP_OPTIONS[runtime]
    return code + 'exec "$1" "$2" "${options[@]}" "${@:3}"'


_USER = {
    "docker": '--user "$(id -u):$(id -g)"',
    "podman": '$([ "$(id -u)" = 0 ] || echo --userns=keep-id)',
}
"""Options that keep the user of a job; Podman keeps root by itself, and then refuses the option."""

_SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The folders of programs in an image: those of the node are not there."""


def _charliecloud(image: str, mounts: Sequence[str], binds: Sequence[str]) -> str:
    """Return the start of a command line for ``ch-run``, which becomes the process that it runs.

    A folder can be mounted only where the image, a folder of the node, has one. Variables pass
    through, but those of the node's Python would have the image's import the node's packages.
    """
    points = " ".join(image + path for path in mounts)
    prepare = f'export USER="${{USER:-$(id -un)}}"; mkdir -p {points} 2>/dev/null; exec "$@"'
    return " ".join(
        [
            f"bash -c {quoted(prepare)} bash ch-run",
            *(f"--bind {bind}" for bind in binds),
            f"--set-env=PATH={_SEARCH} --unset-env='PYTHON*'",
            f"{image} --",
        ]
    )
