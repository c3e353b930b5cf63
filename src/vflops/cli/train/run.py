"""``vflops run`` and ``vflops resume``: one workload or all of them, in one run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflops.cli import options
from vflops.errors import UsageError

if TYPE_CHECKING:
    from vflops.config.settings import Settings
    from vflops.record.formats.challenge import ChallengedRun


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(run)
    app.command()(resume)


def run(
    workload: Annotated[
        str | None,
        typer.Argument(help="Workload to run, see `vflops list`; by default all of them."),
    ] = None,
    profile: options.Profile = None,
    data: Annotated[
        Path | None, typer.Option(help="Your own data; by default synthetic data.")
    ] = None,
    framework: options.Framework = None,
    ranks: Annotated[
        int | None, typer.Option(help="Number of ranks per model, one accelerator each.")
    ] = None,
    models: Annotated[
        int | None, typer.Option(help="Number of base models of an ensemble, trained side by side.")
    ] = None,
    scale: options.Scale = None,
    workers: Annotated[
        int | None, typer.Option(help="Number of workers of a search, each with --ranks ranks.")
    ] = None,
    for_: Annotated[
        str | None, typer.Option("--for", help="Duration of a search: 90s, 30m, 1h, 1h30m.")
    ] = None,
    on: options.On = None,
    nodes: options.Nodes = None,
    rehearse: options.Rehearse = False,
    container: options.Container = None,
    waves: Annotated[
        bool, typer.Option("--waves", help="Train models that do not fit at once in several waves.")
    ] = False,
    twins: Annotated[
        bool,
        typer.Option(
            "--twins", help="Train each model twice, to find nodes with differing results."
        ),
    ] = False,
    repeat: Annotated[
        int | None,
        typer.Option(
            help="Number of training runs, each with the next seed, to see how much they vary."
        ),
    ] = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Profile a few steps by kind of kernel.")
    ] = False,
    seed: options.Seed = None,
    challenge: Annotated[
        Path | None,
        typer.Option(
            help="A challenge of `vflops challenge`, from which all seeds follow; --seed selects"
            " one of its runs."
        ),
    ] = None,
    out: options.Out = Path("runs"),
    config: options.Config = None,
    set_: options.Set = None,
    quiet: options.Quiet = False,
    wait_quiet: options.WaitQuiet = False,
    wait_limit: options.WaitLimit = None,
    metrics_file: options.MetricsFile = None,
) -> None:
    """Run a workload, or the whole suite, and write its report."""
    from vflops.cli.terminal.console import say
    from vflops.cli.terminal.quiet_wait import quiet_wait
    from vflops.cli.terminal.run_display import Progress, with_metrics
    from vflops.run import pipeline
    from vflops.units import count

    flags: dict[str, object] = {
        "data": data,
        "repeat": repeat,
        "launch.on": on,
        "launch.nodes": nodes,
        "launch.container": container,
    }
    if scale is None:  # otherwise they must first make this scale on the nodes
        flags |= {"train.ranks": ranks, "bagging.models": models, "models": models}
    flags |= options.framework_flags(workload, framework)
    flags |= options.search_flags(workload, workers, for_)
    assignments = [f"{key}={value}" for key, value in flags.items() if value is not None]
    if waves:
        assignments.append("bagging.waves=true")
    if twins:
        assignments.append("bagging.twins=true")
    if kernels:
        assignments.append("telemetry.kernels=true")
    rehearsal = options.rehearsal_settings(rehearse=rehearse)
    assignments = [*rehearsal, *(set_ or []), *assignments]
    workloads = workload or "suite"
    settings, size = options.sized_settings(
        profile,
        seed,
        config,
        assignments,
        workloads=workloads,
        scale=scale,
        models=models,
        ranks=ranks,
    )
    if scale is not None and not quiet:
        say(
            f"scale {scale} = {count(size.largest.models, 'model')} × "
            f"{count(size.largest.ranks, 'rank')}; a rank has an accelerator or, without one, a CPU"
            " share"
        )
    if waves and all(settings.models_of(name) == 1 for name in settings.workloads):
        raise UsageError(
            "--waves needs an ensemble, but no workload has several models", hint="add --models M"
        )
    answered = None
    if challenge is not None:
        settings, answered = _challenged(settings, challenge, quiet=quiet)
    wait = quiet_wait(wait_quiet, wait_limit, quiet=quiet, on=settings.launch.on)
    with (
        Progress(quiet=quiet) as progress,
        with_metrics(progress.observer, metrics_file) as observer,
    ):
        folder = pipeline.start(
            out, workload or "suite", settings, observer, before=wait, challenge=answered
        )
        findings = pipeline.conclude(folder, progress.observer)
    progress.summary(folder, findings)


def _challenged(settings: Settings, path: Path, *, quiet: bool) -> tuple[Settings, ChallengedRun]:
    """Return the settings with the seeds of a challenge, and what ``run.json`` records of it."""
    import time

    from vflops.cli.terminal.console import say
    from vflops.publish.evidence.challenges import read_challenge
    from vflops.run.challenged import challenged

    document, signature = read_challenge(path)
    seeded, answered = challenged(settings, document, time.time())
    if not quiet:
        expiry = document.expires_utc
        until = f", to be handed in by {expiry}" if expiry else ""
        issued = f"challenge issued to {document.submitter} at {document.issued_utc}{until}"
        say(f"{issued}; {signature}")
        say(f"run {answered.number} of it: seed {answered.seed}")
    return seeded, answered


def resume(
    run: Annotated[
        Path | None,
        typer.Argument(help="A run folder; by default the newest interrupted one under runs/."),
    ] = None,
    *,
    ranks: Annotated[
        int | None,
        typer.Option(help="Resume with another number of ranks; the result will not be valid."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change how ranks share the model, e.g. parallel.mode=sharded; repeatable.",
        ),
    ] = None,
    end: Annotated[
        bool,
        typer.Option("--end", help="End a stopped search with its results so far."),
    ] = False,
    allow_command: options.AllowCommand = False,
    quiet: options.Quiet = False,
    wait_quiet: options.WaitQuiet = False,
    wait_limit: options.WaitLimit = None,
    metrics_file: options.MetricsFile = None,
) -> None:
    """Resume an interrupted run. Finished work is kept."""
    from vflops.cli.terminal.console import open_interrupted_run, say, shell_path
    from vflops.cli.terminal.quiet_wait import quiet_wait
    from vflops.cli.terminal.run_display import Progress, with_metrics
    from vflops.run import pipeline
    from vflops.run.recorded_programs import require_consent

    folder = open_interrupted_run(run)
    if not folder.history(0).state.complete:  # before it waits for a quiet machine
        require_consent(folder, allow_command=allow_command, tell=say)
    if run is None:
        say(f"resuming {shell_path(folder.path)}")
    on = folder.record.settings.launch.on
    quiet_wait(wait_quiet, wait_limit, quiet=quiet, on=on)()
    with (
        Progress(quiet=quiet) as progress,
        with_metrics(progress.observer, metrics_file) as observer,
    ):
        changes = [] if ranks is None else [f"train.ranks={ranks}"]
        pipeline.resume(
            folder,
            observer,
            [*(set_ or []), *changes],
            end_searches=end,
            allow_command=allow_command,
        )
        findings = pipeline.conclude(folder, progress.observer)
    progress.summary(folder, findings)
