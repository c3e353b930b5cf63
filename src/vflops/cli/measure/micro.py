"""``vflops micro``: the ceilings of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflops.cli import options

_FAMILIES = {"allreduce": ("all-reduce", "all-reduce-modes")}
"""Groups of benchmarks by name."""
_FAMILY_S = 180.0
"""The default budget for a group, in which each mode and precision starts its own ranks."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(micro)


def micro(
    benchmarks: Annotated[
        list[str] | None,
        typer.Argument(
            help="Benchmarks to run, e.g. gemm; allreduce for all its modes; by default all."
        ),
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Total seconds for all benchmarks.")] = None,
    precision: Annotated[
        list[str] | None, typer.Option(help="Measure only this precision; repeatable.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
    profile: options.Profile = None,
    seed: options.Seed = None,
    out: options.Out = Path("runs"),
    json: Annotated[bool, typer.Option("--json", help="Print the score as JSON.")] = False,
    quiet: options.Quiet = False,
    wait_quiet: options.WaitQuiet = False,
    wait_limit: options.WaitLimit = None,
) -> None:
    """Measure the ceilings of this machine. GEMM, convolution, memory, network, storage."""
    from vflops.cli.terminal.quiet_wait import quiet_wait
    from vflops.cli.terminal.run_display import Progress
    from vflops.run import pipeline

    assignments = [f"micro.device={device}", "count.models=[]"]
    if benchmarks:
        named = [name for given in benchmarks for name in _FAMILIES.get(given, (given,))]
        assignments.append(f"micro.benchmarks={named}")
        if budget is None and any(given in _FAMILIES for given in benchmarks):
            budget = _FAMILY_S
    if precision:
        assignments.append(f"micro.precisions={precision}")
    if budget is not None:
        assignments.append(f"micro.budget_s={budget}")
    settings = options.settings(profile, seed, None, assignments)
    wait = quiet_wait(wait_quiet, wait_limit, quiet=quiet or json)
    with Progress(quiet=quiet or json, all_ceilings=True) as progress:
        folder = pipeline.start(out, "micro", settings, progress.observer, before=wait)
        findings = pipeline.conclude(folder, progress.observer)
    if json:
        typer.echo(folder.score_file.read_text(encoding="utf-8"), nl=False)
    else:
        progress.summary(folder, findings)
