"""The file of ``--metrics-file``: the progress of a run, for Prometheus' node exporter."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from vflops import interruption
from vflops.errors import VflopsError
from vflops.publish.export.metrics_text import Family, Labels, prometheus
from vflops.record.files import atomic
from vflops.run.observer import RunObserver

if TYPE_CHECKING:
    from vflops.launch.controller import JobProgress
    from vflops.record.folder import RunFolder
    from vflops.record.formats.job import JobRecord

MIN_INTERVAL_S = 3.0
"""Minimum seconds between two updates, except for important ones."""
STATES = ("waiting", "running", "ended", "lost")


class MetricsFile:
    """Writes the progress of a run to a file, which is replaced atomically.

    A file that cannot be created is an error. If a later update fails, a message is printed and the
    run continues.
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
        with interruption.protected():
            self._write(force=True)

    def wrap(self, other: RunObserver) -> RunObserver:
        """Return an observer that updates this file and then calls ``other``."""
        return RunObserver(
            step=other.step,
            note=other.note,
            warn=other.warn,
            progress=_call_both(self._on_progress, other.progress),
            plan=other.plan,
            start=other.start,
            ceiling=_call_both(self._on_progress, other.ceiling),
            folder=_call_both(self._on_folder, other.folder),
            job=_call_both(self._on_job, other.job),
            event=_call_both(self._on_event, other.event),
            jobs=_call_both(self._on_jobs, other.jobs),
        )

    def _on_folder(self, folder: RunFolder) -> None:
        mark = {"rehearsal": "yes"} if folder.record.settings.launch.rehearse else {}
        self._run = {"run": folder.record.id, **mark}
        self._workload = folder.record.workload
        self._write(force=True)

    def _on_job(
        self, record: JobRecord, place: str, planned: int, ops_per_sample: int | None
    ) -> None:
        from vflops.launch.controller import JobProgress

        progress = JobProgress(record, state="running", ops_per_sample=ops_per_sample)
        self._jobs, self._planned = [*self._jobs, progress], planned
        self._write(force=True)

    def _on_event(self, kind: str, data: dict[str, Any]) -> None:
        if self._jobs:
            self._jobs[-1].take(kind, data)
        self._write(force=kind == "end")

    def _on_jobs(self, jobs: Sequence[JobProgress]) -> None:
        self._jobs = jobs
        self._planned = max(self._planned, len(jobs))
        self._write(force=all(job.over for job in jobs))

    def _on_progress(self, *anything: object) -> None:
        self._write()

    def _write(self, *, force: bool = False) -> None:
        now_s = time.monotonic()
        if not force and now_s - self._written_s < MIN_INTERVAL_S:
            return
        self._written_s = now_s
        try:
            atomic.write_text(self._path, self._text())
        except Exception as error:  # the run matters more than its metrics
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
                Family("run", "Name and workload of the run.", ((about, 1.0),), kind="info"),
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
                self._job_family(
                    "job_epoch", "Passes over the training data.", lambda job: job.epoch
                ),
                self._job_family("job_loss", "Loss at the last report.", lambda job: job.loss),
                self._job_family(
                    "job_quality", "Quality at the last evaluation.", lambda job: job.quality
                ),
                self._job_family(
                    "job_samples_per_second",
                    "Mean training speed of this attempt.",
                    lambda job: job.samples_per_s,
                ),
                self._job_family(
                    "job_sample_units_per_second",
                    "The same in units of samples, such as tokens.",
                    lambda job: job.units_per_s,
                    _unit_label,
                ),
                self._job_family("job_flops", "Mean FLOPS of this attempt.", lambda job: job.flops),
                self._job_family("job_attempts", "Attempts at the job.", _attempts),
            )
        )

    def _job_family(
        self,
        name: str,
        help: str,
        value_of: Callable[[JobProgress], float | None],
        more_labels: Callable[[JobRecord], Labels] = lambda record: {},
    ) -> Family:
        values = ((job.record, value_of(job)) for job in self._jobs)
        samples = tuple(
            (
                {
                    **self._run,
                    "workload": record.workload,
                    "job": str(record.job),
                    "seed": str(record.seed),
                    **more_labels(record),
                },
                value,
            )
            for record, value in values
            if value is not None
        )
        return Family(name, help, samples)


def _call_both(first: Callable[..., None], second: Callable[..., None]) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        first(*arguments)
        second(*arguments)

    return call


def _message(error: Exception) -> str:
    if isinstance(error, VflopsError):
        return error.message
    return f"{type(error).__name__}: {error}"


def _state(job: JobProgress) -> str:
    return "lost" if job.state == "given up" else job.shown_state


def _unit_label(record: JobRecord) -> Labels:
    return {"unit": record.data.unit.name} if record.data.unit else {}


def _attempts(job: JobProgress) -> float | None:
    return float(job.attempts) if job.attempts else None
