"""Bash scripts for ``sbatch``: for one job, or for all jobs as steps of one allocation."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from vflops.errors import UsageError
from vflops.launch.job_script import (
    AGENT,
    Request,
    Step,
    ceilings_lines,
    node_command,
    quoted,
    script_text,
    steps_folder,
)
from vflops.launch.slurm.commands import UNUSABLE_STATE
from vflops.launch.slurm.step_ends import SUFFIX as END_SUFFIX
from vflops.launch.slurm.step_ends import StepEnd

STOP = ".stop"
"""The suffix of a file next to a script; while it exists, the script does not retry jobs."""

_WARNING_S = 90
"""How long before the time limit a job is asked to write a checkpoint and stop, or a sixth of a
short limit. SLURM may ask up to a minute earlier."""

_WITH_RETRIES = """\
with_retries() {  # the arguments of step, then how many times to try it
  local try code number=1
  for ((try = 1; ; try++)); do
    while [ -e "$steps/$1-$number.log" ]; do ((number++)); done
    step "$@" &>"$steps/$1-$number.log"
    code=$?
    # 0: finished; 1: stopped, or srun could not start it; 2: wrong use; 4: another agent has it.
    ((code > 2 && code != 4)) || return $code
    # 5: it restarts after a candidate that cannot be trained, which is no failed try.
    if ((code == 5)); then
      [ ! -e "$stop" ] || return $code
      ((try--))
      continue
    fi
    # A rank hung: if no other job needs this allocation, the next one has other nodes.
    [ ! -e "$run/jobs/$1/hung" ] || ((jobs > 1)) || return $code
    ((try < $5)) || return $code
    if sinfo --noheader --nodes="$(names "$2" "$3")" --format=%T | grep -Eq "$unusable"; then
      echo "job $1 died with code $code and gets other nodes"
      return $code
    fi
    echo "job $1 died with code $code and is tried again"
    sleep $((2 ** (try - 1)))
    [ ! -e "$stop" ] || return $code
  done
}""".splitlines()
"""A bash function that runs a step, and again if it died."""

_UNTIL_GIVEN_UP = f"""\
until_given_up() {{  # the arguments of with_retries; a file says that this allocation gives it up
  local end="$steps/$1{END_SUFFIX}" code
  [ ! -e "$end" ] || return 1  # SLURM has requeued this script: the job restarts elsewhere
  with_retries "$@"
  code=$?
  if ((code)) && [ ! -e "$stop" ]; then
    printf {quoted(StepEnd.bash_format())} "$1" "$code" >"$end.part" && mv "$end.part" "$end"
  fi
  return $code
}}""".splitlines()
"""A bash function that also tells the launcher that a job needs another allocation."""


def job_script(request: Request, run: Path, job: int) -> str:
    """Return the script of a job that is submitted separately; it starts one agent per node."""
    nodes, tasks = request.nodes, request.tasks_per_node
    parts = [
        f"srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1",
        f"--cpus-per-task={tasks * request.cores_per_task} --mem=0",
        _gpus(tasks * request.gpus_per_task),
        "--kill-on-bad-exit=1",
        node_command(request.site, run, str(job), request.gpus_per_task > 0),
    ]
    ceilings = ceilings_lines(_all_nodes(request, "ceilings"), request, run, nodes * tasks)
    return _script(request, [*ceilings, " \\\n  ".join(parts)])


def allocation_script(
    request: Request, run: Path, steps: Sequence[Step], program: Sequence[str] = AGENT
) -> str:
    """Return the script of all jobs in one allocation, started together.

    ``program`` is what Python runs in each step, with the run folder and the job's number.

    A step that dies is retried during the allocation, unless one of its nodes is drained or down,
    or a file with the suffix ``STOP`` exists next to the script. When a step is given up, a
    ``StepEnd`` says so, because the allocation may run on for hours. The script can also be run in
    an allocation that the user already has: ``bash SCRIPT``.
    """
    last = max(step.first_node + step.nodes for step in steps)
    if last > request.nodes:
        raise UsageError(
            f"the jobs need {last} nodes, but the allocation has {request.nodes}",
            hint="request more nodes, or run fewer models",
        )
    cores, gpus = request.cores_per_task, request.gpus_per_task
    tasks = "1" if request.overlap else "$4"
    # If the job sets --mem, a step takes all memory of its node unless it sets --mem=0.
    options = "--exact --mem=0 --kill-on-bad-exit=1" + " --overlap" * request.overlap
    parts = [
        f'srun --job-name={quoted(step_name(run))}"$1"',
        '--nodelist="$(names "$2" "$3")"',
        '--nodes="$3" --ntasks="$3" --ntasks-per-node=1',
        f"--cpus-per-task=$(({tasks} * {cores}))",
        _gpus(f"$(({tasks} * {gpus}))" if gpus else 0),
        options,
        node_command(request.site, run, '"$1"', gpus > 0, program),
    ]
    body = [
        'mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        'names() { local IFS=,; echo "${nodes[*]:$1:$2}"; }  # from a number, how many',
        f"stop={quoted(request.script.with_suffix(STOP))} unusable={quoted(UNUSABLE_STATE)}",
        f"steps={quoted(steps_folder(request.script))}",
        '[ -d "$steps" ] || mkdir "$steps" || exit 1',
        f"run={quoted(run)} jobs={len(steps)}",
        *ceilings_lines(
            _all_nodes(request, f'{quoted(step_name(run))}"ceilings"'),
            request,
            run,
            steps[0].nodes * steps[0].tasks_per_node,
        ),
        '[ ! -e "$stop" ] || exit 1',
        "",
        "step() {  # a job, the number of its first node, its nodes, its ranks on each",
        "  " + " \\\n    ".join(parts),
        "}",
        *_WITH_RETRIES,
        *_UNTIL_GIVEN_UP,
        *(
            f"until_given_up {step.job} {step.first_node} {step.nodes} {step.tasks_per_node} "
            f"{step.tries} & pids+=($!)"
            for step in steps
        ),
        "",
        "failed=0",
        'for pid in "${pids[@]}"; do wait "$pid" || failed=1; done',
        'exit "$failed"',
    ]
    # A node that fails must not end the jobs on other nodes.
    return _script(request, body, more=("--no-kill",))


def _all_nodes(request: Request, name: str) -> str:
    """Return the command that runs one task with all resources of the job on each node."""
    nodes, tasks = request.nodes, request.tasks_per_node
    parts = [
        f"srun --job-name={name} --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1",
        f'--nodelist="$SLURM_JOB_NODELIST" --cpus-per-task={tasks * request.cores_per_task}',
        f"--mem=0 {_gpus(tasks * request.gpus_per_task)}",
    ]
    return " \\\n  ".join([*parts, ""])


def _gpus(number: object) -> str:
    """Return the option of a step for so many GPUs of each node.

    Without it, a step would take all GPUs of its job. It names no type: SLURM 22.05 refuses one in
    an allocation that was requested without.
    """
    return f"--gres=gpu:{number}" if number else "--gres=none"


def step_name(run: Path) -> str:
    """Return the prefix of the names of a run's steps, which is unique to the run."""
    return f"{run.name}-{zlib.crc32(str(run.resolve()).encode()):08x}."


def _script(request: Request, body: Sequence[str], more: Sequence[str] = ()) -> str:
    # The site's directives come last, so that they take precedence.
    options = (*_directives(request), *more, *map(_directive, request.site.directives))
    # Steps would inherit these from the allocation, and SLURM refuses them beside --gres.
    forget = 'for name in "${!SLURM_GPU@}" "${!SLURM_TRES_PER@}"; do unset "$name"; done'
    return script_text(request.site, [f"#SBATCH {option}" for option in options], [forget, *body])


def _directive(text: str) -> str:
    """Return an option of the site as sbatch reads it: a value with spaces in quotes."""
    name, equals, value = text.partition("=")
    if not equals or not re.search(r"\s", value) or value[0] in "\"'":
        return text
    return f"{name}={quoted(value)}"


def _directives(request: Request) -> list[str]:
    """Return the options of sbatch."""
    site, tasks = request.site, request.tasks_per_node
    gpus = tasks * request.gpus_per_task
    options: dict[str, object] = {
        "job-name": request.name,
        "output": _file_pattern(request.output),
        "open-mode": "append",  # a job that is requeued adds to its output
        "nodes": request.nodes,
        "ntasks-per-node": tasks,
        "cpus-per-task": request.cores_per_task,
        "gres": ":".join(filter(None, ("gpu", request.gpu_type, f"{gpus}"))) if gpus else None,
        "mem": _memory(request),
        "account": site.account,
        "partition": site.partition,
        "time": _time(site.time_limit_s),
        "exclude": ",".join(request.exclude) or None,
    }
    warning_s = int(min(_WARNING_S, (request.limit_s or float("inf")) / 6))
    options["signal"] = f"USR1@{max(warning_s, 1)}"
    return [f"--{key}={quoted(value)}" for key, value in options.items() if value is not None]


def _memory(request: Request) -> str | None:
    """Return the memory per node, unless the site sets it or does not manage it."""
    directives = request.site.directives
    if request.memory_mb_per_task is None or any(text.startswith("--mem") for text in directives):
        return None
    if request.site.exclusive:
        return "0"  # all
    return f"{request.tasks_per_node * request.memory_mb_per_task}M"


def _file_pattern(path: Path) -> str:
    """Return the path as SLURM's pattern of a file name, in which ``%j`` is the job's number.

    It is absolute, because SLURM would also replace symbols in the current folder's path.
    """
    path = path.absolute()
    if "\\" in str(path):  # it turns patterns off and is then left out
        raise UsageError(
            f"SLURM cannot write to a path with a backslash: {path}",
            hint="put runs in another folder: choose it with --out",
        )
    return str(path).replace("%", "%%")


def _time(seconds: int | None) -> str | None:
    """Return ``hours:minutes:seconds``, because SLURM reads two numbers as minutes and seconds."""
    if seconds is None:
        return None
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
