"""Jobs in the hands of a scheduler: each submitted by itself, or all in one allocation."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch.jobs import Launcher
from vflops.launch.scheduler import Scheduler, Seen
from vflops.launch.script import Request, Step, allocation_script, job_script
from vflops.launch.site import SiteSettings
from vflops.record import atomic
from vflops.record.folder import RunFolder
from vflops.record.schema import Document

_MOST_LOSSES = 2
"""Jobs that a node may lose before it gets no other."""


class Submitted(Document):
    """``submitted.json`` of a job: what the scheduler knows it by, for whoever takes over."""

    schema_name: ClassVar[str] = "vflops.submitted"

    scheduler: str
    id: str
    attempt: int
    """How often it was handed in, from 1."""


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

    def steps(self, jobs: Sequence[int]) -> list[Step]:
        """The jobs side by side, those that fit on one node together."""
        sharing = max(self.slots // self.ranks, 1)
        return [
            Step(job, place // sharing * self.nodes, self.nodes, self.ranks_per_node)
            for place, job in enumerate(jobs)
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
        self.name = scheduler.name
        self._folder, self._scheduler, self._site = folder, scheduler, site
        self._settings = settings
        ranks = next(iter(jobs.values()))
        self._shape = Shape(ranks, settings.ranks_per_node or ranks)
        self._submitted = {job: known for job in jobs if (known := self._read(job)) is not None}
        self._seen: dict[str, Seen] = {}
        self._looked_s = float("-inf")
        self._losses: Counter[str] = Counter()

    @abstractmethod
    def start(self, jobs: Sequence[int]) -> Collection[int]:
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
        known = self._submitted.get(job)
        seen = self._seen.get(known.id) if known else None
        if seen is None:
            return ""
        return ", ".join(seen.nodes) or (seen.reason or seen.state)

    def ending(self, job: int) -> str | None:
        """The scheduler's own words."""
        known = self._submitted.get(job)
        seen = self._seen.get(known.id) if known else None
        return f"{self.name}: {seen.reason}" if seen and seen.reason else None

    def stop(self) -> None:
        """Ask all jobs of this run to keep a checkpoint and end; nobody else's."""
        self._scheduler.stop(sorted({each.id for each in self._submitted.values()}))
        self._looked_s = float("-inf")

    def lost(self, job: int) -> None:
        """Remember the nodes: one that lost two jobs gets no other of this run."""
        known = self._submitted.get(job)
        seen = self._seen.get(known.id) if known else None
        self._losses.update(seen.nodes if seen else ())

    def _lives(self, submitted: Submitted) -> bool:
        seen = self._seen.get(submitted.id)
        return seen is None or seen.state != "ended"

    def _hand_in(self, jobs: Sequence[int], request: Request, script: str) -> None:
        atomic.write_text(request.script, script)
        native = self._scheduler.submit(request)
        for job in jobs:
            before = self._submitted.get(job)
            known = Submitted(
                scheduler=self._scheduler.name,
                id=native,
                attempt=before.attempt + 1 if before else 1,
            )
            known.write(self._file(job))
            self._submitted[job] = known
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
        path = self._file(job)
        return Submitted.read(path) if path.is_file() else None


class JobsApart(ScheduledJobs):
    """Every job is submitted by itself."""

    def start(self, jobs: Sequence[int]) -> Collection[int]:
        """Submit each of them."""
        for job in jobs:
            request = self._request(
                f"job-{job}",
                self._folder.job_file(job).parent,
                self._shape.nodes,
                self._shape.ranks_per_node,
            )
            script = job_script(request, self._folder.path.resolve(), job, self._scheduler.name)
            self._hand_in([job], request, script)
        return jobs


class JobsTogether(ScheduledJobs):
    """All jobs are steps of one allocation and start together; what dies is tried in another."""

    def start(self, jobs: Sequence[int]) -> Collection[int]:
        """Ask for an allocation of all of them, once the one before has ended."""
        if self.alive():
            return ()
        steps = self._shape.steps(jobs)
        nodes = max(step.first_node + step.nodes for step in steps)
        number = 1 + len(list(self._folder.path.glob("allocation-*.sh")))
        request = self._request(f"allocation-{number}", self._folder.path, nodes, self._shape.slots)
        script = allocation_script(request, self._folder.path.resolve(), steps)
        self._hand_in(jobs, request, script)
        return jobs
