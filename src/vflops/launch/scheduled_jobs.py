"""Jobs in the hands of a scheduler: each submitted by itself, or all in one allocation."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch.interface import Launcher
from vflops.launch.job_script import (
    ELSEWHERE,
    KILLED,
    STOP,
    UNSEEN,
    Request,
    Step,
    allocation_script,
    job_script,
    said,
)
from vflops.launch.node_layout import MOST_LOSSES, Shape
from vflops.launch.scheduler import Scheduler, Seen
from vflops.launch.site import SiteSettings
from vflops.launch.submissions import Intent, Submitted, intents, signals_deferred, submitted
from vflops.record.files import atomic
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobLost

_SILENT_S = 120.0
"""How long a job may run before its output must be in the run folder."""
_LATE_S = 5.0
"""A shared file system may show a file late."""
_IN_FLIGHT_S = 5.0
"""A script may be on its way to the scheduler when the process dies that hands it in."""
_STALE_S = 300.0
"""After this time a script that the scheduler does not know was never handed in, or has ended."""
_WISHED = ("CANCELLED", "DEADLINE", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT")
"""Ends of a job that are somebody's wish, or its own fault, and never its node's."""


class ScheduledJobs(Launcher):
    """What both ways have in common: ids that are written down, and one look at all of them."""

    def __init__(
        self,
        folder: RunFolder,
        scheduler: Scheduler,
        site: SiteSettings,
        settings: LaunchSettings,
        jobs: Mapping[int, int],
    ) -> None:
        """``jobs``: the ranks of each job."""
        self.name = scheduler.label
        self._folder, self._scheduler, self._site = folder, scheduler, site
        self._settings, self._run = settings, folder.path.resolve()
        ranks = next(iter(jobs.values()))
        self._shape = Shape(ranks, settings.ranks_per_node or ranks)
        self._adopt()
        self._submitted = {job: known for job in jobs if (known := self._read(job)) is not None}
        self._seen: dict[str, Seen] = {}
        self._looked_s = float("-inf")
        self._running_s: dict[str, float] = {}
        self._whole: dict[str, tuple[str, ...]] = {}

    @abstractmethod
    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        """Hand in what is to be tried."""

    def alive(self) -> Collection[int]:
        """The jobs that the scheduler has not ended, as it said when it was last asked."""
        if time.monotonic() - self._looked_s >= self._scheduler.interval_s:
            ids = sorted({each.id for each in self._submitted.values()})
            self._seen = self._scheduler.look(ids)
            self._looked_s = time.monotonic()
        return [job for job, each in self._submitted.items() if self._lives(each)]

    def where(self, job: int) -> str:
        """The nodes, or what the job waits for."""
        seen = self._seen_of(job)
        if seen is None:
            return ""
        return ", ".join(self._nodes(job)) or (seen.reason or seen.state)

    def ending(self, job: int) -> str | None:
        """The scheduler's own words, and the last ones of the job's agent."""
        seen = self._seen_of(job)
        words = f"{self.name}: {seen.reason}" if seen and seen.reason else None
        return "; ".join(each for each in (words, self._said(job)) if each) or None

    def stop(self) -> None:
        """Ask all jobs of this run to keep a checkpoint and end; nobody else's."""
        self._keep_from_trying()
        self._scheduler.stop(sorted({each.id for each in self._submitted.values()}))
        self._looked_s = float("-inf")

    def kill(self) -> None:
        """End all jobs of this run that wait or run; nobody else's."""
        self._keep_from_trying()
        self._scheduler.cancel(sorted({self._submitted[job].id for job in self.alive()}))
        self._looked_s = float("-inf")

    def suspects(self, job: int) -> Collection[str]:
        """Its nodes, unless somebody wished its end, or it says itself what its error was."""
        seen, words = self._seen_of(job), self._said(job)
        if seen is None or (seen.reason or "").startswith(_WISHED):
            return ()
        if seen.state != "ended" and not self.together:  # it was put back in the queue
            return ()
        own = words is not None and not any(each in words for each in (UNSEEN, KILLED))
        return () if own else self._nodes(job)

    def elsewhere(self, job: int) -> str | None:
        """What an agent says that found another at the job."""
        words = self._said(job)
        return words if words and ELSEWHERE in words else None

    def unseen(self, job: int) -> str | None:
        """A job that ran and left no trace, or whose node says that it sees another folder."""
        known, seen = self._submitted.get(job), self._seen_of(job)
        if known is None or seen is None or not known.script:
            return None
        if UNSEEN in (words := self._said(job) or ""):
            return words
        if seen.state == "running" and not seen.nodes:
            return None
        ran = seen.state == "ended" and (seen.reason or "").startswith(("FAILED", "COMPLETED"))
        since_s = self._running_s.setdefault(known.id, time.monotonic())
        if not ran and (seen.state != "running" or time.monotonic() - since_s < _SILENT_S):
            return None
        end_s = time.monotonic() + (_LATE_S if ran else 0)
        while not self._log(known).exists():
            if time.monotonic() >= end_s:
                how = seen.reason or f"running for {_SILENT_S:g} s"
                where = ", ".join(self._nodes(job)) or "its node"
                return f"job {job} ran on {where} ({self.name}: {how}) and nothing of it is here"
            time.sleep(0.5)
        return None

    def _said(self, job: int) -> str | None:
        """The last words of the job's agent in the output of its script."""
        known = self._submitted.get(job)
        if known is None or not known.script or not (log := self._log(known)).is_file():
            return None
        lines = log.read_bytes()[known.log_start :].decode(errors="replace").splitlines()
        return next((line for line in reversed(lines) if said("", job) in line), None)

    def _keep_from_trying(self) -> None:
        """Told that jobs shall not begin again by themselves."""

    def _log(self, known: Submitted) -> Path:
        return (self._folder.path / known.script).with_suffix(".log")

    def _seen_of(self, job: int) -> Seen | None:
        known = self._submitted.get(job)
        return self._seen.get(known.id) if known else None

    def _nodes(self, job: int) -> tuple[str, ...]:
        """Those of the job, as they were when all were there: one that dies leaves the list."""
        known, seen = self._submitted.get(job), self._seen_of(job)
        if known is None or seen is None:
            return ()
        whole = max(seen.nodes, self._whole.get(known.id, ()), key=len)
        self._whole[known.id] = whole
        end = None if known.nodes is None else known.first_node + known.nodes
        return whole[known.first_node : end]

    def _lives(self, submitted: Submitted) -> bool:
        seen = self._seen.get(submitted.id)
        return seen is None or seen.state != "ended"

    def _adopt(self) -> None:
        """Know again what was handed in by a controller that died before it had the id."""
        for intent in (each for each in intents(self._folder) if each.scheduler == self.name):
            left_s = min(_IN_FLIGHT_S - intent.age_s(self._folder), _IN_FLIGHT_S)
            end_s, place = time.monotonic() + left_s, intent.file(self._folder)
            native = self._scheduler.find(intent.name, place)
            while native is None and time.monotonic() < end_s:
                time.sleep(0.5)
                native = self._scheduler.find(intent.name, place)
            if native is not None:
                intent.settle(self._folder, native)
            elif intent.age_s(self._folder) > _STALE_S:
                intent.forget(self._folder)

    def _hand_in(
        self, steps: Sequence[Step], request: Request, script: Callable[[Request], str]
    ) -> None:
        """The job is known by its name before it is handed in, and by its id afterwards."""
        path, log = str(request.script.relative_to(self._folder.path)), request.output
        start = log.stat().st_size if log.is_file() else 0
        jobs = {
            each.job: Submitted(
                scheduler=self.name,
                id="",
                attempt=self._next(each.job),
                script=path,
                first_node=each.first_node,
                nodes=each.nodes,
                log_start=start,
            )
            for each in steps
        }
        intent = Intent(name=request.name, scheduler=self.name, script=path, jobs=jobs)
        atomic.write_text(request.script, script(request))
        with signals_deferred():
            intent.write_beside(self._folder)
            try:
                native = self._scheduler.submit(request)
            except UsageError:  # after any other it may be on its way
                intent.forget(self._folder)
                if not request.exclude:
                    raise
            else:
                self._submitted |= intent.settle(self._folder, native)
                self._looked_s = float("-inf")
                return
        # Too few nodes may be left: one that lost jobs is better than none.
        self._hand_in(steps, replace(request, exclude=()), script)

    def _next(self, job: int) -> int:
        before = self._submitted.get(job)
        return before.attempt + 1 if before else 1

    def _request(
        self, stem: str, place: Path, nodes: int, tasks: int, exclude: Iterable[str], number: int
    ) -> Request:
        """``number``: of this script, how often it was handed in."""
        run = self._folder.record.id.rpartition("-")[2]
        return Request(
            name=f"vflops-{run}-{stem}" + (f"-{number}" if number > 1 else ""),
            script=place / f"{stem}.sh",
            nodes=nodes,
            tasks_per_node=tasks,
            cores_per_task=self._settings.cores_per_rank or 1,
            gpus_per_task=self._settings.gpus_per_rank,
            output=place / f"{stem}.log",
            site=self._site,
            exclude=tuple(exclude),
        )

    def _excluded(self) -> list[str]:
        """Nodes that lost too many jobs of this run, whoever was its controller."""
        events = (event for log in self._folder.job_history(0) for event in log.events)
        lost = (event.payload(JobLost) for event in events if event.kind == "job-lost")
        losses = Counter(node for each in lost for node in each.suspects)
        return sorted(node for node, count in losses.items() if count >= MOST_LOSSES)

    def _read(self, job: int) -> Submitted | None:
        known = submitted(self._folder, job)
        return known if known is not None and known.scheduler == self._scheduler.label else None


class JobsApart(ScheduledJobs):
    """Every job is submitted by itself."""

    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        """Submit each of them."""
        nodes, ranks, exclude = self._shape.nodes, self._shape.ranks_per_node, self._excluded()
        for job in jobs:
            place, number = self._folder.job_file(job).parent, self._next(job)
            request = self._request(f"job-{job}", place, nodes, ranks, exclude, number)
            script = partial(job_script, run=self._run, job=job, scheduler=self._scheduler.name)
            self._hand_in([Step(job, 0, nodes, ranks)], request, script)
        return jobs


class JobsTogether(ScheduledJobs):
    """All jobs are steps of one allocation and start together; what dies for good is tried later.

    The script itself tries a step again that dies; another allocation gets the rest.
    """

    together = True

    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        """Ask for an allocation of all of them, once the one before has ended."""
        if self.alive():
            return ()
        steps = self._shape.steps(jobs)
        nodes = max(step.first_node + step.nodes for step in steps)
        number = 1 + len(list(self._folder.path.glob("allocation-*.sh")))
        place, slots, exclude = self._folder.path, self._shape.slots, self._excluded()
        request = self._request(f"allocation-{number}", place, nodes, slots, exclude, 1)
        script = partial(allocation_script, run=self._run, steps=steps)
        self._hand_in(steps, request, script)
        return jobs

    def _keep_from_trying(self) -> None:
        """A script that pauses before it tries a job again has no step that a signal reaches."""
        for script in {each.script for each in self._submitted.values() if each.script}:
            atomic.write_text((self._folder.path / script).with_suffix(STOP), "")
