"""The base class of the back ends of schedulers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence

from vflops.config.launch import LaunchSettings
from vflops.launch import site
from vflops.launch.backend import Backend, CancellableJobs
from vflops.launch.node_layout import NodeLayout
from vflops.launch.placement import Node
from vflops.launch.scheduled_jobs import ScheduledJobs
from vflops.launch.scheduler import Scheduler
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord


class SchedulerBackend(Backend):
    """A back end that runs jobs on the nodes of a scheduler."""

    @abstractmethod
    def scheduler(self) -> Scheduler:
        """Return the scheduler; raise UsageError if it is not installed here."""

    @abstractmethod
    def jobs(self, folder: RunFolder, records: Sequence[JobRecord]) -> ScheduledJobs:
        """Return these jobs of a run, whether or not they have been submitted."""

    def check(self, settings: LaunchSettings) -> None:
        """Raise UsageError if the scheduler is not installed here, or ``site.toml`` is wrong."""
        self.scheduler()
        site.site_for(settings)

    def launcher(self, folder: RunFolder, records: Sequence[JobRecord]) -> ScheduledJobs:
        """Return the launcher that submits these jobs; the run keeps a copy of ``site.toml``."""
        site.copy_to_run(folder.path)
        return self.jobs(folder, records)

    def cancellable(
        self, folder: RunFolder, records: Sequence[JobRecord], *, controlled: bool
    ) -> CancellableJobs:
        """Return the jobs that the scheduler knows by the recorded ids."""
        jobs = self.jobs(folder, records) if records else None
        return _ScheduledToCancel(jobs, stopping=controlled)

    def check_layout(self, nodes: Sequence[Node], ranks: int) -> None:
        """Raise UsageError if a model would have different numbers of ranks on its nodes."""
        NodeLayout(ranks, min(node.slots for node in nodes))


class _ScheduledToCancel:
    def __init__(self, jobs: ScheduledJobs | None, *, stopping: bool) -> None:
        self._jobs, self._stopping = jobs, stopping

    def active_jobs(self) -> Collection[int]:
        return self._jobs.active_jobs() if self._jobs else ()

    def stop(self) -> None:
        if self._jobs and not self._stopping:
            self._stopping = True
            self._jobs.stop()

    def kill(self) -> None:
        if self._jobs:
            self._jobs.kill()

    def controller_gone(self) -> None:
        self._stopping = False
