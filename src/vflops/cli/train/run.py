"""``vflops run`` and ``vflops resume``: a workload, or all of them, into one run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflops.cli import options
from vflops.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(run)
    app.command()(resume)


def run(
    workload: Annotated[
        str | None, typer.Argument(help="What to train, see `vflops list`; everything by default.")
    ] = None,
    profile: options.Profile = None,
    data: Annotated[
        Path | None, typer.Option(help="Your own data; synthetic data by default.")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(help="Ranks that train one model, an accelerator each.")
    ] = None,
    models: Annotated[
        int | None, typer.Option(help="Base models of an ensemble, trained side by side.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Workers of a search, side by side; --ranks are of each.")
    ] = None,
    for_: Annotated[
        str | None, typer.Option("--for", help="How long a search takes: 90s, 30m, 1h, 1h30m.")
    ] = None,
    on: options.On = None,
    container: options.Container = None,
    waves: Annotated[
        bool, typer.Option("--waves", help="Let models that find no place wait for others.")
    ] = False,
    twins: Annotated[
        bool,
        typer.Option("--twins", help="Train each model twice: which nodes compute something else?"),
    ] = False,
    repeat: Annotated[
        int | None, typer.Option(help="Trainings, each with the next seed: how far do they agree?")
    ] = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Profile a few steps by kind of kernel.")
    ] = False,
    seed: options.Seed = None,
    out: options.Out = Path("runs"),
    config: options.Config = None,
    set_: options.Set = None,
    quiet: options.Quiet = False,
    metrics_file: options.MetricsFile = None,
) -> None:
    """Run a workload, or the whole suite, and write its report."""
    from vflops.cli.terminal.run_display import Progress, watched
    from vflops.run import pipeline

    flags: dict[str, object] = {
        "data": data,
        "train.ranks": ranks,
        "repeat": repeat,
        "bagging.models": models,
        "models": models,
        "launch.on": on,
        "launch.container": container,
    }
    flags |= options.search_flags(workload, workers, for_)
    assignments = [f"{key}={value}" for key, value in flags.items() if value is not None]
    if waves and models is None:
        raise UsageError(
            "--waves is for ensembles, and no number of models is given", hint="add --models M"
        )
    if waves:
        assignments.append("bagging.waves=true")
    if twins:
        assignments.append("bagging.twins=true")
    if kernels:
        assignments.append("telemetry.kernels=true")
    settings = options.settings(
        profile, seed, config, [*(set_ or []), *assignments], workloads=workload or "suite"
    )
    with Progress(quiet=quiet) as progress, watched(progress.watch, metrics_file) as watch:
        folder = pipeline.start(out, workload or "suite", settings, watch)
        findings = pipeline.conclude(folder, progress.watch)
    progress.summary(folder, findings)


def resume(
    run: options.Run = None,
    *,
    ranks: Annotated[
        int | None, typer.Option(help="Go on with so many ranks; the result is not valid then.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="How ranks share the model from now on, e.g. parallel.mode."),
    ] = None,
    quiet: options.Quiet = False,
    metrics_file: options.MetricsFile = None,
) -> None:
    """Go on with an interrupted run. What it measured is kept."""
    from vflops.cli.terminal.console import open_run, say, shown
    from vflops.cli.terminal.run_display import Progress, watched
    from vflops.run import pipeline

    folder = open_run(run)
    if run is None:
        say(f"resuming {shown(folder.path)}")
    with Progress(quiet=quiet) as progress, watched(progress.watch, metrics_file) as watch:
        told = [] if ranks is None else [f"train.ranks={ranks}"]
        pipeline.resume(folder, watch, [*(set_ or []), *told])
        findings = pipeline.conclude(folder, progress.watch)
    progress.summary(folder, findings)
