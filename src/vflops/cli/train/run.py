"""``vflops run`` and ``vflops resume``: one workload or all of them, in one run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflops.cli import options
from vflops.cli.run_options import RunOptions


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(run)
    app.command()(resume)


def run(
    workload: options.Workload = None,
    profile: options.Profile = None,
    data: options.Data = None,
    framework: options.Framework = None,
    ranks: options.Ranks = None,
    models: options.Models = None,
    scale: options.Scale = None,
    workers: options.SearchWorkers = None,
    for_: options.For = None,
    on: options.On = None,
    nodes: options.Nodes = None,
    rehearse: options.Rehearse = False,
    container: options.Container = None,
    waves: options.Waves = False,
    twins: options.Twins = False,
    repeat: options.Repeat = None,
    kernels: options.Kernels = False,
    seed: options.Seed = None,
    challenge: options.Challenge = None,
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
    from vflops.cli.train.run_opening import opening_lines

    chosen = RunOptions(
        workload=workload,
        profile=profile,
        data=data,
        framework=framework,
        models=models,
        workers=workers,
        for_=for_,
        ranks=ranks,
        scale=scale,
        on=on,
        nodes=nodes,
        rehearse=rehearse,
        container=container,
        waves=waves,
        twins=twins,
        repeat=repeat,
        kernels=kernels,
        seed=seed,
        challenge=challenge,
        out=out,
        config=config,
        set_=tuple(set_ or ()),
    )
    settings, size = chosen.sized_settings()
    if not quiet:
        for line in opening_lines(chosen):
            say(line, indent=6)
    from vflops.cli.terminal.quiet_wait import quiet_wait  # what follows takes seconds to import
    from vflops.cli.terminal.run_display import Progress, with_metrics
    from vflops.run import pipeline
    from vflops.units import count

    if scale is not None and not quiet:
        say(
            f"scale {scale} = {count(size.largest.models, 'model')} × "
            f"{count(size.largest.ranks, 'rank')}; a rank has an accelerator or, without one, a CPU"
            " share"
        )
    settings, answered = chosen.challenged(settings, quiet=quiet)
    wait = quiet_wait(wait_quiet, wait_limit, quiet=quiet, on=settings.launch.on)
    with (
        Progress(quiet=quiet) as progress,
        with_metrics(progress.observer, metrics_file) as observer,
    ):
        folder = pipeline.start(
            out, chosen.workloads, settings, observer, before=wait, challenge=answered
        )
        findings = pipeline.conclude(folder, progress.observer)
    progress.summary(folder, findings)


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
