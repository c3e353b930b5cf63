"""Runs an experiment of ``vflops scale``, and prints its tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from vflops.studies.scale.experiment import Experiment
    from vflops.studies.scale.scale_result import Scale


def run_experiment(experiment: Experiment, *, quiet: bool) -> None:
    """Run an experiment, and print its figures."""
    from vflops.cli.terminal import console
    from vflops.cli.terminal.run_display import Progress
    from vflops.errors import CheckFailed
    from vflops.run.run_size import rehearsal_line

    if line := rehearsal_line(experiment.settings):
        console.say(line)
    _print_refused(experiment)  # shown before hours are spent on the other points
    with Progress(quiet=quiet) as progress:
        result = experiment.run(progress.observer)
    print_result(experiment, result)
    console.open_page(experiment.page_file, "the curves")
    if result.failed and not result.rehearsal:
        raise typer.Exit(CheckFailed.exit_code)


def _print_refused(experiment: Experiment) -> None:
    from vflops.cli.terminal.columns import columns

    refusals = [
        (experiment.axis.words(size), f"refused: {why}") for size, why in experiment.refused.items()
    ]
    if refusals:
        typer.echo(columns(refusals) + "\n")


def print_result(experiment: Experiment, result: Scale) -> None:
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
    if result.rehearsal:
        typer.echo("\nrehearsal: ranks shared devices, so these speeds say nothing about others")
    for headline, explanation in result.warnings:
        console.say(f"\nwarning: {headline}: {explanation}", indent=9, file=sys.stdout)
    typer.echo(f"\nfigures  {console.shell_path(experiment.figures_file)}")
    typer.echo(f"page     {console.shell_path(experiment.page_file)}")
    if step := axis.next_step(result, experiment.folder):
        console.say(f"next     {step}", indent=9, file=sys.stdout)
    for point in result.failed:
        typer.echo(f"some rules are not met: vflops check {experiment.folder / (point.run or '')}")
