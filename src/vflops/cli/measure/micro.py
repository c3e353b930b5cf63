"""``vflops micro``: the ceilings of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflops.cli import options

_FAMILIES = {"allreduce": ("all-reduce", "all-reduce-modes")}
"""Words for several benchmarks."""
_FAMILY_S = 180.0
"""Seconds where nobody says how many: each mode and precision starts ranks of its own."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(micro)


def micro(
    benchmarks: Annotated[
        list[str] | None, typer.Argument(help="Which ones, e.g. gemm; allreduce: every mode.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Seconds for all of them together.")] = None,
    precision: Annotated[
        list[str] | None, typer.Option(help="Only this precision; repeatable.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
    profile: options.Profile = None,
    seed: options.Seed = None,
    out: options.Out = Path("runs"),
    json: Annotated[bool, typer.Option("--json", help="Print the score as JSON.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure the ceilings. GEMM, convolution, memory, transfer, all-reduce and storage."""
    from vflops.cli.terminal.run_display import Progress
    from vflops.run import pipeline

    assignments = [f"micro.device={device}", "count.models=[]"]
    if benchmarks:
        named = [name for each in benchmarks for name in _FAMILIES.get(each, (each,))]
        assignments.append(f"micro.benchmarks={named}")
        if budget is None and any(each in _FAMILIES for each in benchmarks):
            budget = _FAMILY_S
    if precision:
        assignments.append(f"micro.precisions={precision}")
    if budget is not None:
        assignments.append(f"micro.budget_s={budget}")
    settings = options.settings(profile, seed, None, assignments)
    with Progress(quiet=quiet or json) as progress:
        folder = pipeline.start(out, "micro", settings, progress.watch)
        findings = pipeline.conclude(folder, progress.watch)
    if json:
        typer.echo(folder.score_file.read_text(encoding="utf-8"), nl=False)
    else:
        progress.summary(folder, findings)
