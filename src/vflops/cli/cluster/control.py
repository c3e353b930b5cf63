"""``vflops attach`` and ``vflops cancel``: a run's jobs, picked up again or ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflops.cli import options
from vflops.errors import UsageError

if TYPE_CHECKING:
    from vflops.launch.cancel import Ended
    from vflops.record.folder import RunFolder
    from vflops.record.formats.job import JobRecord


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(attach)
    app.command()(cancel)


def attach(run: options.Run = None, quiet: options.Quiet = False) -> None:
    """Pick up the jobs of a run whose controller died. Nothing is started twice."""
    from vflops.cli.terminal.console import open_run, say, shown
    from vflops.cli.train.run import resume
    from vflops.launch.cancel import alive
    from vflops.record.files.lock import is_locked

    folder = open_run(run)
    name, lock = shown(folder.path), folder.lock
    _refuse_complete(folder, "attach to")
    if is_locked(lock):
        raise UsageError(
            f"{name} has a controller: process {lock.read_text().strip() or 'unknown'}",
            hint=f"let it see to its jobs, or end them: vflops cancel {name}",
        )
    records = _by_agents(folder)
    if not records:
        raise UsageError(
            f"{name} has no jobs to attach to: none was planned that outlives its command",
            hint=f"go on with it: vflops resume {name}",
        )
    history = folder.history()
    ended = [record.job for record in records if history.ended(record.job)]
    living = set(alive(folder, records)) - set(ended)
    rest = len(records) - len(ended) - len(living)
    say(
        f"attaching to {name}: of {len(records)} jobs {len(living)} go on, {len(ended)} have ended"
        + (f", {rest} will be started" if rest else "")
    )
    resume(folder.path, quiet=quiet)


def cancel(
    run: options.Run = None,
    limit: Annotated[
        float, typer.Option(help="Seconds for checkpoints; what still runs is killed then.", min=0)
    ] = 90.0,
) -> None:
    """End the jobs of a run, and of no other. They keep checkpoints to go on from."""
    from vflops.cli.terminal.console import next_step, open_run, shown
    from vflops.launch.cancel import end_run

    folder = open_run(run)
    _refuse_complete(folder, "cancel in")
    name = shown(folder.path)
    ended = end_run(folder, _by_agents(folder), limit)
    if ended.controller is not None:
        how = "killed" if ended.controller_killed else "ended"
        typer.echo(f"{how}: the controller, process {ended.controller}")
    if ended.jobs:
        typer.echo(_fates(folder, ended))
    if ended.controller is None and not ended.jobs:
        typer.echo(f"nothing of {name} is running")
    next_step(f"vflops resume {name}", "to go on with it")


def _refuse_complete(folder: RunFolder, what: str) -> None:
    from vflops.cli.terminal.console import shown

    if folder.history().state.complete:
        name = shown(folder.path)
        raise UsageError(
            f"{name} is complete: there is nothing to {what}",
            hint=f"look at it: vflops report {name}",
        )


def _by_agents(folder: RunFolder) -> list[JobRecord]:
    """The jobs that were planned for agents: base models, workers, others where all are."""
    from vflops.record.formats.job import JobPlanned, JobRecord
    from vflops.run.jobs import by_agents

    planned = [event.payload(JobPlanned).job for event in folder.history().events("job-planned")]
    records = [JobRecord.read(folder.job_file(job)) for job in dict.fromkeys(planned)]
    every = by_agents(folder.record.settings)
    return [each for each in records if every or each.bag is not None or each.worker is not None]


def _fates(folder: RunFolder, ended: Ended) -> str:
    from vflops.results.score.figure_text import count

    kept = [job for job in ended.jobs if _checkpoints(folder, job)]
    words = f"ended: {count(len(ended.jobs), 'job')}, {len(kept)} with a checkpoint to go on from"
    if ended.killed:
        numbers = ", ".join(map(str, sorted(ended.killed)))
        words += f"; killed, because they did not end in time: {numbers}"
    return words


def _checkpoints(folder: RunFolder, job: int) -> list[Path]:
    return list((folder.job_file(job).parent / "checkpoint").glob("step-*.json"))
