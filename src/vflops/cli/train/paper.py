"""``vflops scale --paper``: lists the points of a paper's figures, runs them, prints the values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from vflops.errors import UsageError

if TYPE_CHECKING:
    from vflops.config.settings import Settings
    from vflops.studies.scale.paper_study import PaperStudy, PlannedPoint


def check_paper_options(paper: str, given: Mapping[str, object]) -> None:
    """Raise if options are given that the figures of a paper determine."""
    for option, value in given.items():
        if value is not None:
            raise UsageError(
                f"{option} {value} does not apply to --paper {paper}, whose points are those of the"
                " paper",
                hint="leave it out, or leave out --paper",
            )


def data_assignments(texts: Sequence[str], workloads: Sequence[str]) -> list[str]:
    """Return the settings of ``--data WORKLOAD=DIR``; DIR alone is for the only workload."""
    found = []
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals and len(workloads) == 1:
            name, path = workloads[0], text
        if name not in workloads or not path:
            raise UsageError(
                f"--data {text}: expected WORKLOAD=DIR",
                hint=f"the workloads are {', '.join(workloads)}",
            )
        found.append(f"{name}.data={path}")
    return found


def paper_study(
    paper: str,
    workload: str | None,
    out: Path | None,
    profile: str | None,
    assignments: Sequence[str],
    data: Sequence[str],
    config: Path | None,
    load: Callable[..., Settings],
    ranks: int | None,
    for_: str | None,
) -> PaperStudy:
    """Return the study of a paper with the options of the command.

    The settings of all its workloads are read at once, so that a file and ``--set`` can name each.
    """
    from vflops.cli.options import search_flags
    from vflops.config.profiles import for_single_workload
    from vflops.config.settings import given_settings
    from vflops.launch.factory import runs_here
    from vflops.studies.scale.experiment import changed
    from vflops.studies.scale.paper_study import PaperStudy, ceiling_precisions
    from vflops.studies.scale.papers import PAPERS

    found = PAPERS[paper]
    names = [name for name in found.workloads if workload in (None, name)]
    if not names:
        raise UsageError(
            f"--paper {paper} has no figure of {workload}",
            hint=f"its workloads are {', '.join(found.workloads)}",
        )
    search = search_flags(names[0], None, for_)
    common = [f"{key}={value}" for key, value in search.items() if value is not None]
    common += [*found.settings, *assignments, *data_assignments(data, names)]
    loaded = load(
        profile or found.profile, config=config, assignments=common, workloads=found.workloads
    )
    keeps_precisions = "micro.precisions" in given_settings(config, common)
    settings = {}
    for name in names:
        section = {name: loaded.workloads[name]}
        own = for_single_workload(
            loaded.model_copy(update={"workloads": section}), here=runs_here(loaded.launch.on)
        )
        if not keeps_precisions:
            own = changed(own, {"micro.precisions": ceiling_precisions(found, name, own)})
        settings[name] = own
    folder = out or Path("runs") / f"paper-{paper}-{profile or found.profile}"
    return PaperStudy.create(found, folder, settings, ranks)


def run_study(study: PaperStudy, like: Path | None, *, quiet: bool) -> None:
    """List the points, run those that are missing, and print the values beside the paper's."""
    from vflops.cli.terminal import console
    from vflops.cli.terminal.columns import columns, heading
    from vflops.cli.terminal.run_display import Progress
    from vflops.errors import CheckFailed, RunFailed
    from vflops.run.run_size import rehearsal_line
    from vflops.studies.scale.paper_page import comparison

    earlier = console.read_run(like) if like else None
    with console.working("estimating what the points need"):
        points = study.planned(earlier)
        memories = [study.memory_rank_bytes(point) for point in points]
    if line := rehearsal_line(study.parts[0].experiment.settings):
        console.say(line)
    print_points(points, memories)
    for warning in study.warnings(earlier):
        console.say(f"warning: {warning}")
    with Progress(quiet=quiet) as progress:
        study.run(progress.observer)
    results = list(study.results())
    for figure in study.paper.figures:
        scales = [scale for part, scale in results if part.figure is figure]
        typer.echo("\n" + heading(f"{figure.name}: {figure.shows}"))
        typer.echo(columns(comparison(figure, scales)))
    for folder, why in study.failures.items():
        console.say(f"failed: {console.shell_path(folder)}: {why}")
    broken = study.failed_checks()
    for folder in broken:
        typer.echo(f"some rules are not met: vflops check {console.shell_path(folder)}")
    console.open_page(study.page_file, "the figures")
    if study.failures:
        raise typer.Exit(RunFailed.exit_code)
    if broken and not results[0][1].rehearsal:
        raise typer.Exit(CheckFailed.exit_code)


def print_points(points: Sequence[PlannedPoint], memories: Sequence[int | None]) -> None:
    """Print the points in the order in which they are run, each with its memory of a rank."""
    from vflops.cli.terminal import console
    from vflops.cli.terminal.columns import columns
    from vflops.units import quantity

    missing = [point for point in points if point.state == "to run"]
    known = [point for point in missing if point.node_hours is not None]
    names = ["workload", "M × P", "figures", "nodes", "ranks", "memory"]
    rows = [[*names, *(("time", "node-hours") if known else ()), "state"]]
    for point, memory in zip(points, memories, strict=True):
        variant = f", {point.size.variant}" if point.size.variant else ""
        rows.append(
            [
                f"{point.part.experiment.workload}{variant}",
                f"{point.size.jobs} × {point.size.ranks}",
                ", ".join(point.figures),
                str(point.nodes),
                str(point.ranks),
                "—" if memory is None else quantity(memory, "B"),
                *(_time_cells(point) if known else ()),
                point.state,
            ]
        )
    typer.echo(columns(rows, right=range(3, len(rows[0]) - 1)))
    refused: dict[str, None] = {}
    for point in points:
        why = point.part.experiment.refused.get(point.size)
        if why is not None:
            variant = f" with {point.size.variant}" if point.size.variant else ""
            refused[f"refused{variant}: {why}"] = None
    for line in refused:
        console.say(line)
    if any(memories):
        console.say("memory: a rank's weights, gradients and optimizer state", file=sys.stdout)
    console.say(f"\n{_total(points, missing, known)}\n", file=sys.stdout)


def _total(
    points: Sequence[PlannedPoint], missing: Sequence[PlannedPoint], known: Sequence[PlannedPoint]
) -> str:
    """Return the number of points to run and the node-hours of those whose time is known."""
    total = f"{len(missing)} of {len(points)} points to run"
    if points[0].part.experiment.settings.launch.rehearse:
        return f"{total}. A rehearsal says nothing about their time on the real nodes"
    if known:
        bound = "at least " if any(point.time_is_least for point in known) else ""
        hours = sum(point.node_hours or 0.0 for point in known)
        total += f"; {bound}{hours:,.3g} node-hours for {len(known)} of them"
    if len(known) < len(missing):
        total += (
            "; the first point of a workload measures the time of its others, or --like RUN"
            " estimates it from an earlier run"
        )
    return total


def _time_cells(point: PlannedPoint) -> list[str]:
    """Return the time and the node-hours of a point as text."""
    from vflops.units import seconds

    if point.time_s is None or point.node_hours is None:
        return ["—", "—"]
    bound = "≥ " * point.time_is_least
    return [f"{bound}{seconds(point.time_s)}", f"{bound}{point.node_hours:,.3g}"]
