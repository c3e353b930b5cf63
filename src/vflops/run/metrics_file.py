"""``--metrics-file``: the progress of a run in a file for Prometheus' node exporter."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from vflops.errors import VflopsError
from vflops.publish.export.metrics_text import Family, Labels, prometheus
from vflops.record.files import atomic
from vflops.run.pipeline import RunObserver

if TYPE_CHECKING:
    from vflops.launch.controller import JobProgress
    from vflops.record.folder import RunFolder
    from vflops.record.formats.job import JobRecord

EVERY_S = 3.0
"""Minimum of seconds between two updates."""
STATES = ("waiting", "running", "ended", "lost")


class MetricsFile:
    """Writes the progress of a run to a file, which is complete at any time.

    A file that cannot be created is an error; a later failure prints a line, but the run continues.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._run: Labels = {"run": ""}
        self._workload = ""
        self._jobs: Sequence[JobProgress] = ()
        self._planned = 0
        self._active = True
        self._failed = False
        self._began_s = time.monotonic()
        self._written_s = self._began_s
        atomic.write_text(path, self._text())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._active = False
        with suppress(KeyboardInterrupt):
            self._write(at_once=True)

    def added_to(self, other: RunObserver) -> RunObserver:
        """Return an observer that calls ``other`` and updates this file."""
        return RunObserver(
            step=other.step,
            progress=_both(self._tick, other.progress),
            plan=other.plan,
            start=other.start,
            ceiling=_both(self._tick, other.ceiling),
            folder=_both(self._folder, other.folder),
            job=_both(self._job, other.job),
            event=_both(self._event, other.event),
            jobs=_both(self._all, other.jobs),
        )

    def _folder(self, folder: RunFolder) -> None:
        self._run = {"run": folder.record.id}
        self._workload = folder.record.workload
        self._write(at_once=True)

    def _job(self, record: JobRecord, planned: int, ops_per_sample: int | None) -> None:
        from vflops.launch.controller import JobProgress

        standing = JobProgress(record, state="running", ops_per_sample=ops_per_sample)
        self._jobs, self._planned = [*self._jobs, standing], planned
        self._write(at_once=True)

    def _event(self, kind: str, data: dict[str, Any]) -> None:
        if self._jobs:
            self._jobs[-1].take(kind, data)
        self._write(at_once=kind == "end")

    def _all(self, jobs: Sequence[JobProgress]) -> None:
        self._jobs = jobs
        self._planned = max(self._planned, len(jobs))
        self._write(at_once=all(job.over for job in jobs))

    def _tick(self, *anything: object) -> None:
        self._write()

    def _write(self, *, at_once: bool = False) -> None:
        now_s = time.monotonic()
        if not at_once and now_s - self._written_s < EVERY_S:
            return
        self._written_s = now_s
        try:
            atomic.write_text(self._path, self._text())
        except Exception as error:  # a training matters more than its metrics
            if not self._failed:
                print(f"the metrics file cannot be written: {_message(error)}", file=sys.stderr)
            self._failed = True

    def _text(self) -> str:
        run, active = self._run, float(self._active)
        about = {**run, "workload": self._workload}
        elapsed_s = time.monotonic() - self._began_s
        states = Counter(_state(job) for job in self._jobs)
        states["waiting"] += self._planned - len(self._jobs)
        counts = tuple(({**run, "state": state}, float(states[state])) for state in STATES)
        return prometheus(
            (
                Family("run", "The run.", ((about, 1.0),), kind="info"),
                Family("run_active", "1 while the run is in progress.", ((run, active),)),
                Family(
                    "run_seconds",
                    "Seconds since the run was started or resumed.",
                    ((run, elapsed_s),),
                ),
                Family(
                    "updated_timestamp_seconds", "Time of the last update.", ((run, time.time()),)
                ),
                Family("jobs", "Jobs of the run by state.", counts),
                self._of_jobs("job_epoch", "Passes over the data.", lambda job: job.epoch),
                self._of_jobs("job_loss", "Loss at the last report.", lambda job: job.loss),
                self._of_jobs(
                    "job_quality", "Quality at the last evaluation.", lambda job: job.quality
                ),
                self._of_jobs("job_samples_per_second", "Mean over this attempt.", _samples_per_s),
                self._of_jobs("job_flops", "Mean over this attempt.", lambda job: job.flops),
                self._of_jobs("job_attempts", "Attempts at the job.", _attempts),
            )
        )

    def _of_jobs(
        self, name: str, help: str, figure: Callable[[JobProgress], float | None]
    ) -> Family:
        values = ((job.record, figure(job)) for job in self._jobs)
        samples = tuple(
            (
                {
                    **self._run,
                    "workload": record.workload,
                    "job": str(record.job),
                    "seed": str(record.seed),
                },
                value,
            )
            for record, value in values
            if value is not None
        )
        return Family(name, help, samples)


def _both(ours: Callable[..., None], theirs: Callable[..., None]) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        ours(*arguments)
        theirs(*arguments)

    return call


def _message(error: Exception) -> str:
    if isinstance(error, VflopsError):
        return error.message
    return f"{type(error).__name__}: {error}"


def _state(job: JobProgress) -> str:
    return "lost" if job.state == "given up" else job.shown_state


def _samples_per_s(job: JobProgress) -> float | None:
    return (job.samples - job.first_sample) / job.work_s if job.work_s else None


def _attempts(job: JobProgress) -> float | None:
    return float(job.attempts) if job.attempts else None
