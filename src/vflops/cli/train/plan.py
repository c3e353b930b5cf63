"""``vflops plan``: what a run would do and need, without running it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflops.cli import options

if TYPE_CHECKING:
    from vflops.config.settings import Settings
    from vflops.launch.placement import Plan
    from vflops.record.readout.contents import Contents
    from vflops.run.training_cost import Estimate

_SHOWN = 3
"""Number of models shown at either end of a long plan."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(plan)


def plan(
    workload: Annotated[
        str | None,
        typer.Argument(help="Workload to run, see `vflops list`; by default all of them."),
    ] = None,
    profile: options.Profile = None,
    data: Annotated[
        Path | None, typer.Option(help="Your own data, packed; by default synthetic data.")
    ] = None,
    framework: options.Framework = None,
    models: Annotated[
        int | None, typer.Option(help="Number of base models, M; by default as many as fit.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Number of workers of a search.")] = None,
    for_: Annotated[
        str | None, typer.Option("--for", help="Duration of a search: 90s, 30m, 1h, 1h30m.")
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(help="Number of ranks per model, P; by default the slots of a node."),
    ] = None,
    scale: options.Scale = None,
    on: options.On = None,
    nodes: options.Nodes = None,
    rehearse: options.Rehearse = False,
    slots: Annotated[
        int | None, typer.Option(help="Plan for --nodes of another machine, of K ranks.", min=1)
    ] = None,
    waves: Annotated[
        bool, typer.Option("--waves", help="Train models that do not fit at once in several waves.")
    ] = False,
    twins: Annotated[bool, typer.Option("--twins", help="Train each model twice.")] = False,
    repeat: Annotated[
        int | None, typer.Option(help="Number of ensembles, each with the next seed.")
    ] = None,
    seed: options.Seed = None,
    like: Annotated[
        Path | None, typer.Option(help="An earlier run from which to estimate the speed.")
    ] = None,
    config: options.Config = None,
    set_: options.Set = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show what a run would do and need. Placement, operations, bytes, memory, time."""
    from vflops.cli.terminal import console
    from vflops.cli.train.plan_search import (
        check_no_ensemble_options,
        place_workers,
        plan_search,
        search_section,
    )
    from vflops.config.profiles import PUBLISHED_PROFILES
    from vflops.launch.factory import launcher_class
    from vflops.run.estimate import check_searches
    from vflops.run.run_size import place_models, rehearsal_line, request_lines
    from vflops.run.validate import check_all, framework_warnings

    flags: dict[str, object] = {
        "data": data,
        "launch.on": on,
        "launch.nodes": nodes,
        "bagging.waves": "true" if waves else None,
        "bagging.twins": "true" if twins else None,
        "repeat": repeat,
    }
    if scale is None:  # otherwise they must first make this scale on the nodes
        flags |= {"bagging.models": models, "train.ranks": ranks}
    flags |= options.framework_flags(workload, framework)
    flags |= options.search_flags(workload, workers, for_)
    assignments = [
        *options.rehearsal_settings(rehearse=rehearse),
        *(set_ or []),
        *(f"{key}={value}" for key, value in flags.items() if value is not None),
    ]
    workloads = workload or "suite"
    settings, size = options.sized_settings(
        profile,
        seed,
        config,
        assignments,
        workloads=workloads,
        scale=scale,
        models=models,
        ranks=ranks,
        slots=slots,
    )
    search = search_section(settings)
    largest = size.largest if search is not None else size.largest_ensemble
    if search is not None:
        counts: dict[str, object] = {"--workers": largest.models, "--for": for_}
        unused = {"--models": models, "--waves": waves}
        check_no_ensemble_options(settings, unused)
        mapping = place_workers(largest.nodes, search)
    else:
        counts = {} if workload is None else {"--models": largest.models}
        mapping = place_models(largest, waves=settings.bagging.waves)
    ranks_shown = None if workload is None and ranks is None else largest.ranks
    is_local = launcher_class(settings.launch.on).is_this_machine
    elsewhere = is_local and nodes is not None and nodes > 1 and not rehearse
    layout = [item for item in size.assignments if item.startswith("launch.")]
    launcher_class(settings.launch.on).check_layout(largest.nodes, largest.ranks)
    check_all(settings, here=slots is None)
    lines, idle = request_lines(settings) if slots is None else ([], [])
    if line := rehearsal_line(settings):
        console.say(line)
    for warning in (*framework_warnings(settings), *idle):
        console.say(f"warning: {warning}")
    for line in lines:
        console.say(line)
    check_searches(settings)
    earlier = console.read_run(like) if like else None
    if search is not None:
        plan_search(settings, mapping, earlier, json=json)
    else:
        _plan_models(settings, mapping, earlier, json=json)
    if json:
        return
    options_shown = {
        "--profile": settings.profile,
        "--framework": framework,
        **counts,
        "--ranks": ranks_shown,
        "--on": "slurm" if elsewhere else on,
        "--nodes": nodes if elsewhere or rehearse or not is_local or slots is None else None,
        "--data": data or ("DIR" if settings.profile in PUBLISHED_PROFILES else None),
    }
    options_shown |= {"--repeat": repeat, "--seed": seed, "--config": config}
    command = ["vflops", "run", *([workload] if workload else [])]
    command += [
        f"{word}"
        for name in options_shown
        if options_shown[name] is not None
        for word in (name, options_shown[name])
    ]
    command += (
        ["--rehearse"] * rehearse
        + ["--waves"] * settings.bagging.waves
        + ["--twins"] * settings.bagging.twins
    )
    for assignment in (*(set_ or ()), *layout):
        command += ["--set", assignment]
    why = "run it there; --on slurm submits it" if elsewhere else "run it"
    why = "run it there" if nodes == 1 and is_local else why
    why = why if "DIR" not in command else f"{why}; DIR holds the published data"
    console.next_step(shlex.join(command), why)


def _plan_models(
    settings: Settings, mapping: Plan, earlier: Contents | None, *, json: bool
) -> None:
    """Print what training needs, and the duration of the suite's searches."""
    import json as json_

    from vflops.cli.terminal import console
    from vflops.cli.train.plan_search import show_search
    from vflops.run.estimate import estimate_run
    from vflops.run.jobs import placement_order
    from vflops.workloads.contract.registry import workload

    without_searches = {
        name: section
        for name, section in settings.workloads.items()
        if not workload(name).is_search
    }
    training_settings = settings.model_copy(update={"workloads": without_searches})
    estimates = estimate_run(training_settings, mapping, earlier, console.working)
    order = placement_order(mapping.models, settings)
    if json:
        workloads = {name: estimate.model_dump(mode="json") for name, estimate in estimates.items()}
        placements = [
            {"model": model, "wave": placement.wave, "places": placement.places}
            for model, placement in zip(order, mapping.placements, strict=True)
        ]
        typer.echo(json_.dumps({"workloads": workloads, "placements": placements}, indent=1))
        return
    _show(mapping, order, estimates)
    for name, section in settings.workloads.items():
        if name not in without_searches:
            show_search(name, section, on=settings.launch.on)


def _show(mapping: Plan, order: Sequence[int], estimates: Mapping[str, Estimate]) -> None:
    """Print the placement of the models, in ``order``, and the estimates."""
    from vflops.cli.terminal.columns import columns, heading
    from vflops.run.training_cost import estimate_rows, placement_text
    from vflops.units import count

    models, ranks = count(mapping.models, "model"), count(mapping.ranks, "rank")
    typer.echo(heading(f"{models} of {ranks}"))
    placements = tuple(zip(order, mapping.placements, strict=True))
    is_cut = len(placements) > 2 * _SHOWN + 2
    lines = (*placements[:_SHOWN], *placements[-_SHOWN:]) if is_cut else placements
    table = [
        [f"{model + 1:,}", str(placement.wave + 1), placement_text(placement)]
        for model, placement in lines
    ]
    if is_cut:
        table.insert(_SHOWN, ["…", "", f"{len(placements) - len(lines):,} more"])
    typer.echo(columns([["model", "wave", "node: slots"], *table], right=(0, 1)))
    for name, estimate in estimates.items():
        typer.echo("\n" + heading(name))
        typer.echo(columns(estimate_rows(estimate)))
