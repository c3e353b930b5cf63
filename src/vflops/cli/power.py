"""``vflops power``: a node's or a PDU's own power log, added to a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(power)


def power(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    log: Annotated[Path, typer.Argument(help="CSV: a time and power_w, power_kw or energy_j.")],
) -> None:
    """Add a node's or PDU's power log to a run. Its score and report are made again."""
    from vflops import suite
    from vflops.cli import console
    from vflops.score import words
    from vflops.score.record import Score

    folder = console.open_run(run)
    kept = suite.import_power(folder, log)
    suite.conclude(folder, suite.Watch())
    print(f"written: {console.shown(kept)}")
    for each in Score.read(folder.score_file).trainings:
        print(f"{each.workload}, seed {each.seed}: {words.power(each.power)}")
    console.next_step(f"vflops score {console.shown(folder.path)}", "with the power of the node")
