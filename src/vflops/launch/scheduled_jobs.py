"""Jobs in the hands of a scheduler: each submitted by itself, or all in one allocation."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch.jobs import Launcher
from vflops.launch.scheduler import Scheduler, Seen
from vflops.launch.script import STOP, UNSEEN, Request, Step, allocation_script, job_script, said
from vflops.launch.site import SiteSettings
from vflops.record import atomic
from vflops.record.folder import RunFolder
from vflops.record.schema import Document

_MOST_LOSSES = 2
"""Jobs that a node may lose before it gets no other."""
_SILENT_S = 120.0
"""How long a job may run before its output must be in the run folder."""
_LATE_S = 5.0
"""A shared file system may show a file late."""


class Submitted(Document):
    """``submitted.json`` of a job: what the scheduler knows it by, for whoever takes over."""

    schema_name: ClassVar[str] = "vflops.submitted"

    scheduler: str
    """The scheduler, or the allocation of the user's that it runs in."""
    id: str
    attempt: int
    """How often it was handed in, from 1."""
    script: str = ""
    """What was handed in, under the run folder; its output lies beside it."""
    first_node: int = 0
    nodes: int | None = None
    """Of an allocation's nodes those of the job, from the first of them; None: all."""


@dataclass(frozen=True)
class Shape:
    """How jobs of ``ranks`` ranks lie on nodes of ``slots`` ranks."""

    ranks: int
    slots: int

    def __post_init__(self) -> None:
        if self.ranks > self.slots and self.ranks % self.slots:
            raise UsageError(
                f"{self.ranks} ranks of a model do not fill nodes of {self.slots} ranks",
                cure=f"take a multiple of {self.slots}, or another launch.ranks_per_node",
            )

    @property
    def nodes(self) -> int:
        """Of one job."""
        return max(self.ranks // self.slots, 1)

    @property
    def ranks_per_node(self) -> int:
        """Of one job."""
        return min(self.ranks, self.slots)

    def steps(self, jobs: Mapping[int, int]) -> list[Step]:
        """The jobs side by side, those that fit on one node together.

        ``jobs``: how often each may be tried. A node that lost a job twice shall get no other, so
        further tries are left to another allocation.
        """
        sharing = max(self.slots // self.ranks, 1)
        nodes, ranks = self.nodes, self.ranks_per_node
        return [
            Step(job, place // sharing * nodes, nodes, ranks, min(tries, _MOST_LOSSES))
            for place, (job, tries) in enumerate(jobs.items())
        ]


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
        self._submitted = {job: known for job in jobs if (known := self._read(job)) is not None}
        self._seen: dict[str, Seen] = {}
        self._looked_s = float("-inf")
        self._running_s: dict[str, float] = {}
        self._whole: dict[str, tuple[str, ...]] = {}
        self._losses: Counter[str] = Counter()

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

    def lost(self, job: int) -> None:
        """Remember the nodes: one that lost two jobs gets no other of this run."""
        self._losses.update(self._nodes(job))

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
        log = self._log(known) if known is not None and known.script else None
        if log is None or not log.is_file():
            return None
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
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

    def _hand_in(
        self, steps: Sequence[Step], request: Request, script: Callable[[Request], str]
    ) -> None:
        try:
            atomic.write_text(request.script, script(request))
            native = self._scheduler.submit(request)
        except UsageError:
            if not request.exclude:
                raise
            # Too few nodes may be left: one that lost jobs is better than none.
            self._losses.clear()
            return self._hand_in(steps, replace(request, exclude=()), script)
        for step in steps:
            before = self._submitted.get(step.job)
            known = Submitted(
                scheduler=self._scheduler.label,
                id=native,
                attempt=before.attempt + 1 if before else 1,
                script=str(request.script.relative_to(self._folder.path)),
                first_node=step.first_node,
                nodes=step.nodes,
            )
            known.write(self._file(step.job))
            self._submitted[step.job] = known
        self._looked_s = float("-inf")

    def _request(self, name: str, place: Path, nodes: int, tasks: int) -> Request:
        return Request(
            name=f"vflops-{name}",
            script=place / f"{name}.sh",
            nodes=nodes,
            tasks_per_node=tasks,
            cores_per_task=self._settings.cores_per_rank or 1,
            gpus_per_task=self._settings.gpus_per_rank,
            output=place / f"{name}.log",
            site=self._site,
            exclude=tuple(sorted(n for n, lost in self._losses.items() if lost >= _MOST_LOSSES)),
        )

    def _file(self, job: int) -> Path:
        return self._folder.job_file(job).parent / "submitted.json"

    def _read(self, job: int) -> Submitted | None:
        known = submitted(self._folder, job)
        return known if known is not None and known.scheduler == self._scheduler.label else None


def submitted(folder: RunFolder, job: int) -> Submitted | None:
    """What a job was handed in as, where it was."""
    path = folder.job_file(job).parent / "submitted.json"
    return Submitted.read(path) if path.is_file() else None


class JobsApart(ScheduledJobs):
    """Every job is submitted by itself."""

    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        """Submit each of them."""
        nodes, ranks = self._shape.nodes, self._shape.ranks_per_node
        for job in jobs:
            place = self._folder.job_file(job).parent
            request = self._request(f"job-{job}", place, nodes, ranks)
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
        request = self._request(f"allocation-{number}", self._folder.path, nodes, self._shape.slots)
        script = partial(allocation_script, run=self._run, steps=steps)
        self._hand_in(steps, request, script)
        return jobs

    def _keep_from_trying(self) -> None:
        """A script that pauses before it tries a job again has no step that a signal reaches."""
        for script in {each.script for each in self._submitted.values() if each.script}:
            atomic.write_text((self._folder.path / script).with_suffix(STOP), "")
