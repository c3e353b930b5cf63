"""``vflops power``: adds the power log of a node or a PDU to a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflops.text import printable


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(power)


def power(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    log: Annotated[
        Path, typer.Argument(help="CSV file with a time and power_w, power_kw or energy_j.")
    ],
) -> None:
    """Add a node's or PDU's power log to a run. Updates its score and report."""
    from vflops.cli.terminal import console
    from vflops.results.score import figure_text
    from vflops.results.score.score_file import Score
    from vflops.run import pipeline
    from vflops.run.observer import RunObserver

    folder = console.open_run(run)
    copied = pipeline.import_power(folder, log)
    pipeline.conclude(folder, RunObserver())
    print(f"written: {console.shell_path(copied)}")
    for training in Score.read(folder.score_file).trainings:
        line = f"{training.workload}, seed {training.seed}: {figure_text.power(training.power)}"
        print(printable(line))
    console.next_step(
        f"vflops score {console.shell_path(folder.path)}", "the score with this power"
    )
