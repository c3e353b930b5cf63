"""A site's scheduler: scripts submitted, looked after with one query for all, and cancelled."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

from vflops.errors import RunFailed, UsageError, unknown_name
from vflops.launch.job_script import Request, SchedulerName
from vflops.launch.slurm.commands import (
    NO_SLURM,
    NO_SLURM_CURE,
    ask,
    last_line,
    no_answer,
    scancel,
)

if TYPE_CHECKING:
    from psij import Job, JobExecutor

_SUBMIT = {"slurm": "sbatch", "pbs": "qsub", "lsf": "bsub", "flux": "flux"}
_FIRST_S, _LAST_S = 1.0, 30.0
_TIMEOUT_S = 60.0
_AT_ONCE = 1000
"""Jobs that one query asks for: a command line has an end."""
_UNSURE = ("contact slurm controller", "timed out", "Unknown error")
"""Words after which a script may have been taken or not."""

_ENDS = frozenset(
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY REVOKED TIMEOUT".split()
)
_WAITING = frozenset(
    "CONFIGURING PENDING REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT".split()
)
_USABLE = frozenset("allocated completing idle mixed planned".split())
_FIELDS = ("JobArrayID", "State", "NodeList", "exit_code", "Reason")


@dataclass(frozen=True)
class Seen:
    """What the scheduler says of a job; only the job's own last event says how it ended."""

    state: Literal["waiting", "running", "ended"]
    nodes: tuple[str, ...]
    reason: str | None
    """The scheduler's own words, where it has any."""


@dataclass(frozen=True)
class Allocation:
    """Nodes that this process holds already."""

    job_id: str
    nodes: tuple[str, ...]
    cpus_per_node: tuple[int, ...]


class Scheduler:
    """One site's scheduler, behind psij; SLURM is asked itself about its jobs.

    psij 0.9 calls a preempted job failed and does not notice one that went back to the queue.
    """

    def __init__(self, name: str, work: Path | None = None) -> None:
        """``work``: a shared folder for psij's own files; SLURM needs none."""
        if name not in get_args(SchedulerName):
            raise unknown_name("scheduler", name, get_args(SchedulerName))
        command = _SUBMIT[name]
        if shutil.which(command) is None:
            raise UsageError(
                f"no {command} here: {name} is not on this machine, or not on PATH",
                hint="start from a login node of the cluster (module load?), or use --on local",
            )
        self.name: SchedulerName = cast(SchedulerName, name)
        self.label: str = name
        """What the record calls it."""
        self.interval_s = _FIRST_S
        """Seconds until it is worth looking again: more while nothing changes, to 30."""
        self._work = work
        self._executor: JobExecutor | None = None
        self._jobs: dict[str, Job] = {}
        self._seen: dict[str, Seen] = {}

    def submit(self, request: Request) -> str:
        """Hand in the script as it stands; the scheduler's id of the job."""
        from psij import Job, JobState, SubmitException

        from vflops.launch.psij import executors

        self.interval_s = _FIRST_S
        job = Job(executors.specification(self.name, request))
        try:
            self._psij().submit(job)
            if self.name == "flux":  # its id comes later, from a thread of psij's
                job.wait(timedelta(seconds=_TIMEOUT_S), [JobState.QUEUED])
        except (SubmitException, OSError) as error:
            raise self._refusal(request, str(error)) from error
        native = str(job.native_id)
        self._jobs[native] = job
        return native

    def find(self, name: str, intent: Path) -> str | None:
        """The id of the user's job of that name, also of one that has just ended; None: none.

        ``intent``: the file that says that it was to be handed in.
        """
        if self.name != "slurm":
            raise RunFailed(
                f"{name} may have been handed in to {self.name}, and its id is not known",
                hint=f"end it if it is there, remove {intent}, and go on",
            )
        who = ["--noheader", "--states=all", f"--user={os.getuid()}", f"--name={name}"]
        done = ask(["squeue", *who, "--format=%i"])
        if done.returncode != 0:
            raise no_answer("squeue", done.stderr)
        return next(iter(done.stdout.split()), None)

    def look(self, ids: Sequence[str]) -> dict[str, Seen]:
        """Each job as the scheduler sees it now, by one query for them all, or for each thousand.

        A scheduler that does not answer leaves the jobs as they were seen last.
        """
        before = {each: self._seen.get(each) for each in ids}
        if ids:
            if self.name == "slurm":
                for first in range(0, len(ids), _AT_ONCE):
                    self._seen.update(self._slurm(ids[first : first + _AT_ONCE]))
            else:
                self._seen.update(self._psij_states(ids))
        seen = {each: self._seen[each] for each in ids}
        self.interval_s = _FIRST_S if seen != before else min(1.5 * self.interval_s, _LAST_S)
        return seen

    def cancel(self, ids: Sequence[str]) -> None:
        """End these jobs; those that have ended already stay as they are."""
        if not ids:
            return
        self.interval_s = _FIRST_S
        if self.name == "slurm":
            scancel(*ids)
            return
        for each in ids:
            self._attached(each).cancel()

    def stop(self, ids: Sequence[str]) -> None:
        """Ask these jobs to keep a checkpoint and end; those that wait are cancelled."""
        if self.name != "slurm":
            self.cancel(ids)
        elif ids:
            self.interval_s = _FIRST_S
            scancel("--state=PENDING", *ids)
            # To the agents alone, and with no kill behind it as a cancellation has.
            scancel("--state=RUNNING", "--signal=TERM", *ids)

    def _slurm(self, ids: Sequence[str]) -> dict[str, Seen]:
        form = ",".join(f"{field}:|" for field in _FIELDS)
        done = ask(["squeue", "--noheader", "--states=all", f"--jobs={','.join(ids)}", "-O", form])
        if done.returncode != 0 and "Invalid job id" not in done.stderr:
            if NO_SLURM in done.stderr and not self._seen:
                raise no_answer("squeue", done.stderr)
            silent = Seen("waiting", (), last_line(done.stderr))
            return {each: self._seen.get(each, silent) for each in ids}
        found = {}
        for line in done.stdout.splitlines():
            each, state, nodes, code, reason = line.split("|", len(_FIELDS) - 1)
            found[each] = self._of_slurm(each, state, nodes, code, reason.rstrip("|"))
        gone = Seen("ended", (), "SLURM no longer knows the job")
        return {each: found.get(each, gone) for each in ids}

    def _of_slurm(self, job: str, state: str, nodes: str, code: str, reason: str) -> Seen:
        words = state if reason in ("", "None") else f"{state}: {reason}"
        ended = state in _ENDS
        if state == "PREEMPTED":
            # One that goes back to the queue is pending by the next look; else it has ended.
            last = self._seen.get(job)
            ended = last is not None and (last.reason or "").startswith("PREEMPTED")
        if ended:
            kind: Literal["waiting", "running", "ended"] = "ended"
            words += _exit_words(code)
        else:
            kind = "waiting" if state in (*_WAITING, "PREEMPTED") else "running"
        return Seen(kind, tuple(expand(nodes)), None if state == "RUNNING" else words)

    def _psij_states(self, ids: Sequence[str]) -> dict[str, Seen]:
        from psij import JobState

        config = self._psij().config
        if hasattr(config, "queue_polling_interval"):
            config.queue_polling_interval = round(self.interval_s)
        found = {}
        for each in ids:
            status = self._attached(each).status
            words = " ".join(filter(None, (status.state.name, status.message)))
            if status.state.final:
                found[each] = Seen("ended", (), words)
            else:
                running = status.state is JobState.ACTIVE
                found[each] = Seen("running" if running else "waiting", (), words)
        return found

    def _attached(self, native: str) -> Job:
        from psij import Job, JobSpec

        if native not in self._jobs:
            job = Job(JobSpec(executable="/bin/true"))
            self._psij().attach(job, native)
            self._jobs[native] = job
        return self._jobs[native]

    def _psij(self) -> JobExecutor:
        if self._executor is None:
            from vflops.launch.psij.executors import executor

            self._executor = executor(self.name, self._work)
        return self._executor

    def _refusal(self, request: Request, words: str) -> UsageError | RunFailed:
        message = f"{self.name} refused {request.script}: {last_line(words)}"
        if NO_SLURM in words:
            return UsageError(message, hint=NO_SLURM_CURE)
        if any(each in words for each in _UNSURE):
            return RunFailed(message, hint="the scheduler does not answer: try again")
        hint = f"what it is told stands in {request.script}, from site.toml"
        if "partition" in words and self.name == "slurm":
            names = sorted(set(ask(["sinfo", "--noheader", "-o", "%R"]).stdout.split()))
            hint = f"set partition in site.toml to one of: {', '.join(names)} (sinfo lists them)"
            message += f" ({request.site.partition})" if request.site.partition else ""
        elif "account" in words:
            hint = "set account in site.toml to one of yours"
        return UsageError(message, hint=hint)


@dataclass(frozen=True)
class SlurmNode:
    """A node as ``sinfo`` lists it."""

    name: str
    cpus: int
    resources: str
    """Its GPUs among them: ``gpu:a100:4(S:0-1),…``."""
    state: str
    reason: str
    in_default: bool
    """Whether its partition is the one that jobs get when they name none."""

    @property
    def usable(self) -> bool:
        """Whether a job could get it, now or when others have ended."""
        return self.state in _USABLE


def slurm_nodes(partition: str | None) -> list[SlurmNode]:
    """Every node of a partition, or of all; one may stand there once for each partition."""
    command = ["sinfo", "--noheader", "--Node", "--format=%N|%c|%G|%T|%P|%E"]
    done = ask([*command, *([f"--partition={partition}"] if partition else [])])
    if done.returncode != 0:
        raise no_answer("sinfo", done.stderr)
    found = []
    for line in done.stdout.splitlines():
        name, cpus, resources, state, of, reason = line.strip().split("|", 5)
        found.append(SlurmNode(name, int(cpus), resources, state, reason, of.endswith("*")))
    return found


def held_allocation() -> Allocation | None:
    """The allocation of SLURM's that this process runs in (``salloc``, ``sbatch``), if any."""
    job, nodes = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_JOB_NODELIST")
    if not job or not nodes:
        return None
    cpus: list[int] = []
    for part in os.environ.get("SLURM_JOB_CPUS_PER_NODE", "").split(","):
        if found := re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part):
            cpus += [int(found[1])] * int(found[2] or 1)
    return Allocation(job, tuple(expand(nodes)), tuple(cpus))


def expand(nodes: str) -> Iterator[str]:
    """Each name of a list as SLURM writes it: ``n[1-3,07],m4`` is n1, n2, n3, n07 and m4."""
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", nodes):
        head, bracket, rest = part.partition("[")
        inside, _, tail = rest.partition("]")
        if not bracket:
            yield head
            continue
        for span in inside.split(","):
            first, _, last = span.partition("-")
            for number in range(int(first), int(last or first) + 1):
                yield from expand(f"{head}{number:0{len(first)}}{tail}")


def _exit_words(code: str) -> str:
    """SLURM's exit code in words: a status as ``wait`` gives it, or ``code:signal``."""
    if ":" in code:
        exit_code, number = (int(part) for part in code.split(":")[:2])
    else:
        exit_code, number = divmod(int(code or 0), 256)
    return f", signal {number}" if number else f", exit code {exit_code}" if exit_code else ""
