"""``vflops replay``: the candidates of a finished search as fixed work, on any machine."""

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
        Path, typer.Argument(help="The run folder of a search that ended, or its ledger.json.")
    ],
    workers: Annotated[
        int | None, typer.Option(help="Workers that share the candidates.", min=1)
    ] = None,
    ranks: Annotated[int | None, typer.Option(help="Ranks of each worker.", min=1)] = None,
    data: Annotated[
        Path | None, typer.Option(help="Your own data, packed; that of the search by default.")
    ] = None,
    on: options.On = None,
    out: options.Out = Path("runs"),
    set_: options.Set = None,
    quiet: options.Quiet = False,
) -> None:
    """Train once more what a search found. The same candidates, epochs and seeds, no search."""
    from vflops.cli.terminal import console
    from vflops.cli.terminal.run_display import Progress
    from vflops.run import pipeline
    from vflops.workloads.automl.replay import SearchLedger

    found = SearchLedger.find(ledger)
    settings = found.replay_settings(
        ledger,
        {
            "search.workers": workers,
            "train.ranks": ranks,
            "data": data,
            "launch.on": on,
        },
        set_ or [],
    )
    if found.left_out:
        console.say(f"{found.left_out} candidates have no result in the ledger and are left out:")
        for reason, names in found.left_out_by_reason.items():
            console.say(f"  {', '.join(names)}: {reason}")
    with Progress(quiet=quiet) as progress:
        folder = pipeline.start(out, "automl", settings, progress.watch)
        findings = pipeline.conclude(folder, progress.watch)
    progress.summary(folder, findings)
