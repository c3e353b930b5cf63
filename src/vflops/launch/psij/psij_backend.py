"""Runs jobs on PBS, LSF and Flux; each is submitted separately."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.launch.psij.psij_scheduler import PsijScheduler
from vflops.launch.scheduled_jobs import ScheduledJobs, SeparateJobs
from vflops.launch.scheduler import Scheduler
from vflops.launch.scheduler_backend import SchedulerBackend
from vflops.launch.site import site_for
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord


class PsijBackend(SchedulerBackend):
    """A scheduler that psij supports; its nodes cannot be listed."""

    def scheduler(self) -> Scheduler:
        """Return the scheduler; raise UsageError if it is not installed here."""
        return PsijScheduler(self.name)

    def jobs(self, folder: RunFolder, records: Sequence[JobRecord]) -> ScheduledJobs:
        """Return the jobs, each submitted separately."""
        settings = folder.record.settings.launch
        scheduler = PsijScheduler(self.name, folder.path / "psij")
        ranks = {record.job: record.ranks for record in records}
        return SeparateJobs(folder, scheduler, site_for(settings, folder.path), settings, ranks)
