"""PBS, LSF and Flux, through psij, which is imported late because that takes half a second."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from vflops.errors import RunFailed, UsageError, unknown_name
from vflops.launch.job_script import Request
from vflops.launch.outage import SchedulerUnavailable
from vflops.launch.psij.psij_script import job_script
from vflops.launch.scheduler import JobStatus, Scheduler, last_line

if TYPE_CHECKING:
    from psij import Job, JobExecutor

_SUBMIT = {"pbs": "qsub", "lsf": "bsub", "flux": "flux"}
_FLUX = "flux"
_NO_CONTACT = ("cannot connect to server", "Connection refused", "LSF is down")
"""Parts of the messages of commands that cannot reach the scheduler."""
_ID_LIMIT_S = 60.0
"""How long Flux may take to assign a job's id."""


class PsijScheduler(Scheduler):
    """A scheduler that psij knows."""

    def __init__(self, name: str, work: Path | None = None) -> None:
        """``work`` is a shared folder for files that psij writes."""
        if name not in _SUBMIT:
            raise unknown_name("scheduler", name, _SUBMIT)
        super().__init__(name, _SUBMIT[name])
        self._work = work
        self._executor: JobExecutor | None = None
        self._jobs: dict[str, Job] = {}

    def job_script(self, request: Request, run: Path, job: int) -> str:
        """Return the script of a job on one node."""
        return job_script(request, run, job, self.name)

    def submit(self, request: Request) -> str:
        """Submit the request's script and return the scheduler's id of the job."""
        from psij import Job, JobState, SubmitException

        from vflops.launch.psij.executors import specification

        self.expect_change()
        job = Job(specification(self.name, request))
        try:
            self._psij().submit(job)
            if self.name == _FLUX:  # psij sets the id later, in a thread
                job.wait(timedelta(seconds=_ID_LIMIT_S), [JobState.QUEUED])
        except (SubmitException, OSError) as error:
            raise self._refusal(request, str(error)) from error
        native = str(job.native_id)
        self._jobs[native] = job
        return native

    def find(self, name: str, intent: Path) -> str | None:
        """Raise RunFailed: psij cannot look up a job by its name."""
        raise RunFailed(
            f"{name} may have been submitted to {self.name}, but its id is not known",
            hint=f"cancel the job if it is in the queue, remove {intent}, and resume the run",
        )

    def cancel(self, ids: Sequence[str]) -> None:
        """End these jobs."""
        if ids:
            self.expect_change()
        for job in ids:
            self._attached(job).cancel()

    def stop(self, ids: Sequence[str]) -> None:
        """Cancel these jobs, because psij cannot send them a signal."""
        self.cancel(ids)

    def _query(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        from psij import JobState

        config = self._psij().config
        if hasattr(config, "queue_polling_interval"):
            config.queue_polling_interval = round(self.interval_s)
        statuses = {}
        for job in ids:
            status = self._attached(job).status
            reason = " ".join(filter(None, (status.state.name, status.message)))
            if status.state.final:
                statuses[job] = JobStatus("ended", (), reason)
            else:
                running = status.state is JobState.ACTIVE
                statuses[job] = JobStatus("running" if running else "waiting", (), reason)
        return statuses

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

    def _refusal(self, request: Request, output: str) -> UsageError | RunFailed:
        message = f"{self.name} refused {request.script}: {last_line(output)}"
        if any(text in output for text in _NO_CONTACT):
            return SchedulerUnavailable(message, may_have_succeeded=False)
        if "timed out" in output or "Unknown error" in output:
            return SchedulerUnavailable(message, may_have_succeeded=True)
        if "account" in output:
            return UsageError(message, hint="set account in site.toml to one of yours")
        return UsageError(message, hint=f"its options are in {request.script}, from site.toml")
