"""Runs a command on one rank, and writes its reports as events of the job."""

from __future__ import annotations

import math
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from vflops.config.training import CEILING_PRECISIONS
from vflops.errors import Interrupted, RunFailed, UsageError, VflopsError
from vflops.launch.rehearsal import SharedMachine
from vflops.record.folder import file_hash
from vflops.record.formats.job_events import Evaluated, Finished, JobStarted, Progressed, Resumed
from vflops.train.context import JobContext
from vflops.workloads.command.environment import INDICES, environment, threads_per_rank
from vflops.workloads.command.process import Process
from vflops.workloads.command.reports import Reader, Report
from vflops.workloads.command.script_predictions import store_predictions
from vflops.workloads.command.settings import CommandSettings
from vflops.workloads.command.workload import DATA_SHA256, fingerprint, resolved_command

_PROGRESS_S = 1.0
"""Seconds between two progress events."""
_POLL_S = 0.1


def run(context: JobContext) -> None:
    """Run the command until it ends; the first rank's reports become the events of the job."""
    settings = CommandSettings.model_validate(context.record.settings)
    folder = Path(str(context.record.data.facts["folder"]))
    data = str(context.record.data.facts.get(DATA_SHA256, ""))
    if fingerprint(settings, folder, data) != context.record.data.fingerprint:
        raise UsageError(
            "the command's script has changed since this run began",
            hint="start a new run, or restore the original script",
        )
    variables = environment(context, settings)
    process = Process(resolved_command(settings), folder, variables)
    job = CommandJob(context, settings)
    try:
        if context.rank == 0:
            context.write_event("job", job.started(Path(variables[INDICES])))
        _follow(process, context, job)
    except VflopsError:
        process.stop()
        raise
    _check_exit(process, job, context)


def _follow(process: Process, context: JobContext, job: CommandJob) -> None:
    """Read the command's output until it ends; pass on a signal to stop."""
    ended = False
    while True:
        if context.stop.signal and not ended and process.exit_code is None:
            raise _stop(process, context, job)
        line = process.next_line(0.0 if ended else _POLL_S)
        if line is not None:
            job.process_line(line)
        elif ended:
            return
        else:
            ended = process.has_ended()


def _stop(process: Process, context: JobContext, job: CommandJob) -> Interrupted:
    """Stop the command, read its last reports, and return the exception to raise."""
    process.stop()
    while (line := process.next_line(_POLL_S)) is not None:
        with suppress(RunFailed):  # its last line may have been cut off
            job.process_line(line)
    job.write_progress()
    return Interrupted(f"stopped by {context.stop.signal} after {job.samples} samples")


def _check_exit(process: Process, job: CommandJob, context: JobContext) -> None:
    code = process.exit_code or 0
    if code:
        how = (
            f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        )
        errors = process.last_errors
        raise RunFailed(
            f"the command {how}"
            + (f"; its last lines:\n{errors}" if errors else " without an error message"),
            hint=f"see its output: {context.attempt / f'rank-{context.rank}.log'}",
        )
    if context.rank == 0:
        job.finish()


class CommandJob:
    """Writes the reports of the first rank's command as events of the job."""

    def __init__(self, context: JobContext, settings: CommandSettings) -> None:
        self._context = context
        self._settings = settings
        self._clock = context.clock
        self._clock.enter("start-up")
        self._reader = Reader(context.record.goal, settings.validation)
        self._began = False
        self._reported = False
        self._last: Evaluated | None = None
        self._loss: float | None = None
        self._progress_s = -math.inf

    @property
    def samples(self) -> int:
        """Samples trained on so far."""
        return self._reader.samples

    def started(self, indices: Path) -> JobStarted:
        """Return what is known about the job before it runs, with the hash of its sample."""
        settings, facts = self._settings, self._context.record.data.facts
        device = str(facts["device"])
        precision = settings.precision
        return JobStarted(
            device=device,
            device_name=str(facts["device name"]),
            ranks=self._context.record.ranks,
            precision=precision or "unstated precision",
            ceiling_precision=CEILING_PRECISIONS[precision] if precision else None,
            batch=settings.train.batch,
            compiled=False,
            threads=threads_per_rank(self._context) if device == "cpu" else 0,
            parameters=None,
            torch=None,
            indices_sha256=file_hash(indices),
            rehearsal=SharedMachine.of() is not None,
        )

    def process_line(self, line: str) -> None:
        """Process a line of output; ranks other than the first only log it."""
        if self._context.rank > 0:
            return
        before = self.samples
        report = self._reader.read(line)
        if report is None:
            return
        self._begin(report)
        if report.phase is not None:
            self._clock.enter(report.phase)
            return
        if not self._reported:
            self._reported = True
            self._resume()
        if report.loss is not None:
            self._loss = report.loss
            if not math.isfinite(report.loss):
                raise self._diverged()
        if report.quality is not None:
            self._evaluated(report)
        elif time.monotonic() - self._progress_s >= _PROGRESS_S:
            self.write_progress()
        if report.quality is not None or self.samples > before:
            self._clock.enter("training")  # even if the script does not report it

    def write_progress(self) -> None:
        """Write a progress event."""
        self._progress_s = time.monotonic()
        payload = Progressed(**self._progress(), loss=self._loss)
        self._context.write_event("progress", payload, sync=False)

    def finish(self) -> None:
        """Write the end of training; raise ``RunFailed`` if a required report is missing."""
        missing = "any samples" if not self.samples else "a quality" if self._last is None else ""
        if missing:
            raise RunFailed(
                f"the command ended without reporting {missing}",
                hint="its script must print JSON lines: docs/how-to/workloads.md shows them",
            )
        payload = Finished(**self._progress(), reason="command", weights_sha256=None)
        self._context.write_event("finished", payload)
        if self._context.record.bag is not None:  # after the timed part
            stored = store_predictions(self._context.attempt, self._settings, self._last)
            self._context.write_event("predictions", stored)

    def _begin(self, report: Report) -> None:
        """Enter the training phase at the first report.

        If that report already contains samples, the time before it counts as training. This does
        not apply to a later attempt, whose first samples are those of the attempt before.
        """
        if not self._began:
            self._began = True
            if report.samples and not self._is_retry:
                self._clock.rename("training")
            else:
                self._clock.enter("training")

    def _resume(self) -> None:
        if self._is_retry and self.samples > 0:
            state = "the command's own state"
            payload = Resumed(step=self.samples, samples=self.samples, file=state)
            self._context.write_event("resumed", payload)

    @property
    def _is_retry(self) -> bool:
        return int(self._context.attempt.name) > 0

    def _evaluated(self, report: Report) -> None:
        assert report.quality is not None and report.evaluated is not None
        payload = Evaluated(**self._progress(), quality=report.quality, evaluated=report.evaluated)
        self._context.write_event("evaluation", payload)
        self._last = payload

    def _progress(self) -> dict[str, Any]:
        return {
            "step": self.samples,  # steps are unknown; samples serve the same purpose
            "samples": self.samples,
            "epoch": round(self.samples / self._context.record.data.train, 4),
            "phases": self._clock.spent_s(),
        }

    def _diverged(self) -> RunFailed:
        return RunFailed(
            f"the loss is {self._loss} after {self.samples} samples: the command was stopped",
            hint="start again with a smaller learning rate, or a higher precision",
        )
