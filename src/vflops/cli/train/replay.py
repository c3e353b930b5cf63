"""``vflops replay``: trains the candidates of a finished search again, as fixed work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflops.cli import options


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(replay)


def replay(
    ledger: Annotated[
        Path, typer.Argument(help="Run folder of a finished search, or its ledger.json.")
    ],
    workers: Annotated[
        int | None, typer.Option(help="Number of workers that share the candidates.", min=1)
    ] = None,
    ranks: Annotated[int | None, typer.Option(help="Number of ranks per worker.", min=1)] = None,
    data: Annotated[
        Path | None, typer.Option(help="Your own data, packed; by default that of the search.")
    ] = None,
    on: options.On = None,
    out: options.Out = Path("runs"),
    set_: options.Set = None,
    quiet: options.Quiet = False,
) -> None:
    """Train the candidates of a finished search again. Same epochs and seeds, no search."""
    from vflops.cli.terminal import console
    from vflops.cli.terminal.run_display import Progress
    from vflops.run import pipeline
    from vflops.workloads.automl.replay import SearchLedger

    search_ledger = SearchLedger.find(ledger)
    settings = search_ledger.replay_settings(
        ledger,
        {
            "search.workers": workers,
            "train.ranks": ranks,
            "data": data,
            "launch.on": on,
        },
        set_ or [],
    )
    if search_ledger.left_out:
        console.say(
            f"{search_ledger.left_out} candidates without a result in the ledger are left out:"
        )
        for reason, names in search_ledger.left_out_by_reason.items():
            console.say(f"  {', '.join(names)}: {reason}")
    with Progress(quiet=quiet) as progress:
        folder = pipeline.start(out, "automl", settings, progress.observer)
        findings = pipeline.conclude(folder, progress.observer)
    progress.summary(folder, findings)
