"""``vflops attach`` and ``vflops cancel``: follow the jobs of a run again, or cancel them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflops.cli import options
from vflops.errors import Hint, UsageError

if TYPE_CHECKING:
    from vflops.launch.cancel import Cancelled
    from vflops.record.folder import RunFolder
    from vflops.record.formats.job import JobRecord


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(attach)
    app.command()(cancel)


def attach(
    run: options.Run = None,
    allow_command: options.AllowCommand = False,
    quiet: options.Quiet = False,
) -> None:
    """Follow the jobs of a run whose controller died. Nothing is started twice."""
    from vflops.cli.terminal.console import open_run, say, shell_path
    from vflops.cli.train.run import resume
    from vflops.launch.cancel import active_jobs
    from vflops.record.files.lock import is_locked
    from vflops.run.recorded_programs import require_consent

    folder = open_run(run)
    require_consent(folder, allow_command=allow_command)
    name, lock = shell_path(folder.path), folder.lock
    require_incomplete(folder, "attach to")
    if is_locked(lock):
        raise UsageError(
            f"{name} has a controller: process {lock.read_text().strip() or 'unknown'}",
            hint=Hint("leave the jobs to it, or end them", f"vflops cancel {name}"),
        )
    records = _agent_jobs(folder)
    if not records:
        raise UsageError(
            f"{name} has no jobs to attach to: none of its jobs outlives the command",
            hint=Hint("resume the run", f"vflops resume {name}"),
        )
    ended = [record.job for record in records if folder.ended(record.job)]
    active = set(active_jobs(folder, records)) - set(ended)
    not_started = len(records) - len(ended) - len(active)
    say(
        f"attaching to {name}: of {len(records)} jobs, {len(active)} are active, {len(ended)} have"
        " ended" + (f", {not_started} will be started" if not_started else "")
    )
    resume(folder.path, allow_command=allow_command, quiet=quiet)


def cancel(
    run: options.Run = None,
    limit: Annotated[
        float,
        typer.Option(help="Seconds to write checkpoints; after that, jobs are killed.", min=0),
    ] = 90.0,
) -> None:
    """Cancel one run's jobs and controller, and nothing else. The jobs write checkpoints first."""
    from vflops.cli.terminal.console import next_step, open_run, shell_path
    from vflops.launch.cancel import cancel_run
    from vflops.record.own_runs import is_own
    from vflops.run.stopped_searches import can_be_ended

    folder = open_run(run)
    require_incomplete(folder, "cancel")
    name = shell_path(folder.path)
    cancelled = cancel_run(folder, _agent_jobs(folder), limit)
    if cancelled.controller is not None:
        how = "killed" if cancelled.controller_killed else "ended"
        typer.echo(f"{how}: the controller, process {cancelled.controller}")
    if cancelled.jobs:
        typer.echo(_summary(folder, cancelled))
    if cancelled.controller is None and not cancelled.jobs:
        typer.echo(f"{name} has no running jobs and no controller")
    if not is_own(folder.path):
        return
    next_step(f"vflops resume {name}", "to resume the run")
    if can_be_ended(folder):
        next_step(f"vflops resume --end {name}", "to end the search with its results so far")


def require_incomplete(folder: RunFolder, action: str) -> None:
    """Raise UsageError if the run is complete, so that there is nothing to ``action``."""
    from vflops.cli.terminal.console import shell_path

    if folder.history(0).state.complete:
        name = shell_path(folder.path)
        raise UsageError(
            f"{name} is complete: there is nothing to {action}",
            hint=Hint("see its report", f"vflops report {name}"),
        )


def _agent_jobs(folder: RunFolder) -> list[JobRecord]:
    """Return the jobs that agents run: base models, workers, or all jobs if so configured."""
    from vflops.record.formats.job import JobRecord
    from vflops.record.formats.job_events import JobPlanned
    from vflops.run.jobs import uses_agents

    planned = [event.payload(JobPlanned).job for event in folder.history(0).events("job-planned")]
    records = [JobRecord.read(folder.job_file(job)) for job in dict.fromkeys(planned)]
    all_jobs = uses_agents(folder.record.settings)
    return [
        record
        for record in records
        if all_jobs or record.bag is not None or record.worker is not None
    ]


def _summary(folder: RunFolder, cancelled: Cancelled) -> str:
    from vflops.units import count

    jobs = cancelled.jobs
    resumable = [job for job in jobs if _checkpoint_files(folder, job)]
    text = f"ended: {count(len(jobs), 'job')}, {len(resumable)} with a checkpoint to resume from"
    if cancelled.killed:
        numbers = ", ".join(map(str, sorted(cancelled.killed)))
        text += f"; killed, because they did not end in time: {numbers}"
    return text


def _checkpoint_files(folder: RunFolder, job: int) -> list[Path]:
    return list((folder.job_file(job).parent / "checkpoint").glob("step-*.json"))
