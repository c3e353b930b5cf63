"""Runs the experiments of ``vflops scale``, and prints their tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from vflops.studies.scale.experiment import Experiment
    from vflops.studies.scale.scale_result import Scale


def run_experiments(experiments: list[Experiment], folder: Path, *, quiet: bool) -> None:
    """Run all experiments, and print their figures; with several, write a page for all."""
    from vflops.cli.terminal import console
    from vflops.cli.terminal.run_display import Progress
    from vflops.errors import CheckFailed
    from vflops.studies.scale.joint_page import write_joint_page

    for experiment in experiments:  # shown before hours are spent on the other points
        _print_refused(experiment)
    results = []
    for experiment in experiments:
        with Progress(quiet=quiet) as progress:
            results.append(experiment.run(progress.observer))
        if len(experiments) > 1:
            typer.echo(f"\n{experiment.workload}")
        _print_result(experiment, results[-1])
    page = experiments[0].page_file
    if len(experiments) > 1:
        page = folder / page.name
        axes = [experiment.axis for experiment in experiments]
        write_joint_page(list(zip(results, axes, strict=True)), page)
        typer.echo(f"\nall      {console.shell_path(page)}")
    console.open_page(page, "the curves")
    if any(result.failed for result in results):
        raise typer.Exit(CheckFailed.exit_code)


def _print_refused(experiment: Experiment) -> None:
    from vflops.cli.terminal.columns import columns

    refusals = [
        (experiment.axis.words(size), f"refused: {why}") for size, why in experiment.refused.items()
    ]
    if refusals:
        typer.echo(columns(refusals) + "\n")


def _print_result(experiment: Experiment, result: Scale) -> None:
    """Print the tables of an experiment, its warnings, and where its files are."""
    from vflops.cli.terminal import console
    from vflops.cli.terminal.columns import columns

    axis = experiment.axis
    table = axis.table(result)
    typer.echo("\n" + columns(table, right=range(axis.named_columns, len(table[0]) - 1)))
    summary = axis.summary_table(result)
    if summary:
        typer.echo("\n" + columns(summary, right=range(1, len(summary[0]))))
    usage = axis.usage_table(result)
    if usage:
        typer.echo("\n" + columns(usage, right=range(1, len(usage[0]) - 1)))
    remarks = axis.remarks(result)
    if remarks:
        typer.echo("\n" + columns(remarks))
    for headline, explanation in result.warnings:
        console.say(f"\nwarning: {headline}: {explanation}", indent=9, file=sys.stdout)
    typer.echo(f"\nfigures  {console.shell_path(experiment.figures_file)}")
    typer.echo(f"page     {console.shell_path(experiment.page_file)}")
    if step := axis.next_step(result, experiment.folder):
        console.say(f"next     {step}", indent=9, file=sys.stdout)
    for point in result.failed:
        typer.echo(f"some rules are not met: vflops check {experiment.folder / (point.run or '')}")
