"""``vflops run`` and ``vflops resume``: the whole suite into one run folder."""

from __future__ import annotations

from pathlib import Path

import typer

from vflops.cli import options


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(run)
    app.command()(resume)


def run(
    profile: options.Profile = None,
    seed: options.Seed = None,
    out: options.Out = Path("runs"),
    config: options.Config = None,
    set_: options.Set = None,
    quiet: options.Quiet = False,
) -> None:
    """Run the whole suite at the profile that suits the machine, and write its report."""
    from vflops import suite
    from vflops.cli.progress import Progress

    settings = options.settings(profile, seed, config, set_ or [])
    with Progress(quiet=quiet) as progress:
        folder = suite.start(out, "suite", settings, progress.watch)
        findings = suite.conclude(folder, progress.watch)
    progress.summary(folder, findings)


def resume(run: options.Run = None, quiet: options.Quiet = False) -> None:
    """Go on with a run that was interrupted; what it measured is kept."""
    from vflops import suite
    from vflops.cli.console import open_run
    from vflops.cli.progress import Progress

    folder = open_run(run)
    with Progress(quiet=quiet) as progress:
        suite.resume(folder, progress.watch)
        findings = suite.conclude(folder, progress.watch)
    progress.summary(folder, findings)
