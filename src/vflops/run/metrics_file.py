"""``--metrics-file``: where a run stands, as a file for Prometheus' node exporter to collect."""

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
from vflops.run.pipeline import Watch

if TYPE_CHECKING:
    from vflops.launch.controller import JobProgress
    from vflops.record.folder import RunFolder
    from vflops.record.formats.job import JobRecord

EVERY_S = 3.0
"""Seconds between two writings, at the least."""
STATES = ("waiting", "running", "ended", "lost")


class MetricsFile:
    """Writes a run's standing to a file while it goes on; whole at every moment.

    A file that cannot be begun is an error; one that fails later costs a line, not the run.
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

    def beside(self, other: Watch) -> Watch:
        """``other``, which sees all that it would see, and this file too."""
        return Watch(
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
        self._write(at_once=all(each.over for each in jobs))

    def _tick(self, *anything: object) -> None:
        self._write()

    def _write(self, *, at_once: bool = False) -> None:
        now_s = time.monotonic()
        if not at_once and now_s - self._written_s < EVERY_S:
            return
        self._written_s = now_s
        try:
            atomic.write_text(self._path, self._text())
        except Exception as error:  # whatever it is, a training is worth more than its metrics
            if not self._failed:
                print(f"metrics are not written: {_told(error)}", file=sys.stderr)
            self._failed = True

    def _text(self) -> str:
        run, active = self._run, float(self._active)
        about = {**run, "workload": self._workload}
        elapsed_s = time.monotonic() - self._began_s
        states = Counter(_state(each) for each in self._jobs)
        states["waiting"] += self._planned - len(self._jobs)
        counts = tuple(({**run, "state": each}, float(states[each])) for each in STATES)
        return prometheus(
            (
                Family("run", "The run that this is of.", ((about, 1.0),), kind="info"),
                Family("run_active", "1 while the run goes on.", ((run, active),)),
                Family("run_seconds", "Since the run was begun or resumed.", ((run, elapsed_s),)),
                Family(
                    "updated_timestamp_seconds", "When this was written.", ((run, time.time()),)
                ),
                Family("jobs", "Jobs of the run by state.", counts),
                self._of_jobs("job_epoch", "Passes over the data.", lambda job: job.epoch),
                self._of_jobs("job_loss", "Loss at its last note.", lambda job: job.loss),
                self._of_jobs(
                    "job_quality", "Quality at the last evaluation.", lambda job: job.quality
                ),
                self._of_jobs("job_samples_per_second", "Mean of this attempt.", _samples_per_s),
                self._of_jobs("job_flops", "Mean of this attempt.", lambda job: job.flops),
                self._of_jobs("job_attempts", "Attempts at it.", _attempts),
            )
        )

    def _of_jobs(
        self, name: str, help: str, figure: Callable[[JobProgress], float | None]
    ) -> Family:
        found = ((each.record, figure(each)) for each in self._jobs)
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
            for record, value in found
            if value is not None
        )
        return Family(name, help, samples)


def _both(ours: Callable[..., None], theirs: Callable[..., None]) -> Callable[..., None]:
    def told(*arguments: Any) -> None:
        ours(*arguments)
        theirs(*arguments)

    return told


def _told(error: Exception) -> str:
    if isinstance(error, VflopsError):
        return error.message
    return f"{type(error).__name__}: {error}"


def _state(job: JobProgress) -> str:
    return "lost" if job.state == "given up" else job.shown_state


def _samples_per_s(job: JobProgress) -> float | None:
    return (job.samples - job.first_sample) / job.work_s if job.work_s else None


def _attempts(job: JobProgress) -> float | None:
    return float(job.attempts) if job.attempts else None
