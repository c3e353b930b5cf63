"""``vflops plan``: what a run would do and need, without running it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflops.cli import options
from vflops.cli.run_options import RunOptions

if TYPE_CHECKING:
    from vflops.config.settings import Settings
    from vflops.launch.placement import Plan
    from vflops.record.readout.contents import Contents
    from vflops.run.run_size import RunSize
    from vflops.run.training_cost import Estimate

_SHOWN = 3
"""Number of models shown at either end of a long plan."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(plan)


def plan(
    workload: options.Workload = None,
    profile: options.Profile = None,
    data: options.Data = None,
    framework: options.Framework = None,
    models: options.Models = None,
    workers: options.SearchWorkers = None,
    for_: options.For = None,
    ranks: options.Ranks = None,
    scale: options.Scale = None,
    on: options.On = None,
    nodes: options.Nodes = None,
    rehearse: options.Rehearse = False,
    slots: Annotated[
        int | None, typer.Option(help="Plan for --nodes of another machine, of K ranks.", min=1)
    ] = None,
    container: options.Container = None,
    waves: options.Waves = False,
    twins: options.Twins = False,
    repeat: options.Repeat = None,
    kernels: options.Kernels = False,
    seed: options.Seed = None,
    challenge: options.Challenge = None,
    like: Annotated[
        Path | None, typer.Option(help="An earlier run from which to estimate the speed.")
    ] = None,
    out: options.Out = Path("runs"),
    config: options.Config = None,
    set_: options.Set = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show what a run would do and need. Placement, operations, bytes, memory, time."""
    from vflops.cli.terminal import console
    from vflops.cli.train.plan_search import place_workers, plan_search, search_section
    from vflops.launch.factory import launcher_class
    from vflops.launch.node_layout import check_layout
    from vflops.run.estimate import check_searches, short_training
    from vflops.run.run_size import place_models, rehearsal_line, request_lines
    from vflops.run.validate import check_run, framework_warnings

    chosen = RunOptions(
        workload=workload,
        profile=profile,
        data=data,
        framework=framework,
        models=models,
        workers=workers,
        for_=for_,
        ranks=ranks,
        scale=scale,
        on=on,
        nodes=nodes,
        rehearse=rehearse,
        container=container,
        waves=waves,
        twins=twins,
        repeat=repeat,
        kernels=kernels,
        seed=seed,
        challenge=challenge,
        out=out,
        config=config,
        set_=tuple(set_ or ()),
    )
    settings, size = chosen.sized_settings(slots)
    settings, _ = chosen.challenged(settings, quiet=json)
    if line := rehearsal_line(settings):
        console.say(line)
    check_run(settings, here=slots is None)
    search = search_section(settings)
    largest = size.largest if search is not None else size.largest_ensemble
    if search is not None:
        mapping = place_workers(largest.nodes, search)
    else:
        mapping = place_models(largest, waves=settings.bagging.waves)
    check_layout(launcher_class(settings.launch.on), largest.nodes, largest.ranks)
    lines, idle = request_lines(settings) if slots is None else ([], [])
    for warning in (*framework_warnings(settings), *idle):
        console.say(f"warning: {warning}")
    for line in lines:
        console.say(line)
    for refused in check_searches(settings, console.working):
        console.say(f"warning: {refused}")
    earlier = console.read_run(like) if like else None
    planned, why = _planned_run(chosen, settings, size, slots)
    if search is not None:
        plan_search(settings, mapping, earlier, json=json)
    else:
        _plan_models(settings, mapping, earlier, json=json)
    if not json:
        console.next_step(shlex.join(planned.words()), why)
    if not json and search is None and earlier is None and not rehearse:  # which has no speeds
        short = planned.with_settings(*short_training(_without_searches(settings)))
        purpose = "a short run, whose speed --like RUN estimates the time from"
        console.other_step(shlex.join(short.words()), purpose)


def _planned_run(
    chosen: RunOptions, settings: Settings, size: RunSize, slots: int | None
) -> tuple[RunOptions, str]:
    """Return the options of the planned run, and what it does.

    On this machine it has the options of the plan. For other nodes it also has the sizes that were
    planned, because the nodes may have changed until then.
    """
    from vflops.cli.train.plan_search import search_section
    from vflops.config.profiles import PUBLISHED_PROFILES
    from vflops.launch.factory import launcher_class

    is_local = launcher_class(settings.launch.on).is_this_machine
    elsewhere = is_local and (chosen.nodes or 1) > 1 and not chosen.rehearse
    planned = replace(chosen, profile=settings.profile)
    why = "run it"
    if slots is not None or not is_local:
        is_search = search_section(settings) is not None
        largest = size.largest if is_search else size.largest_ensemble
        if chosen.workload is not None:  # each workload of a suite has its own size
            planned = replace(planned, scale=None, ranks=largest.ranks)
            if is_search:
                planned = replace(planned, workers=largest.models)
            else:
                planned = replace(planned, models=largest.models)
        layout = (item for item in size.assignments if item.startswith("launch."))
        planned = planned.with_settings(*layout)
    if elsewhere:
        planned, why = replace(planned, on="slurm"), "run it there; --on slurm submits it"
    elif slots is not None and is_local:
        planned, why = replace(planned, nodes=None), "run it there"
    if settings.profile in PUBLISHED_PROFILES and chosen.data is None:
        planned, why = replace(planned, data=Path("DIR")), f"{why}; DIR holds the published data"
    return planned, why


def _without_searches(settings: Settings) -> Settings:
    """Return the settings without the workloads that are searches."""
    from vflops.workloads.contract.registry import workload

    sections = {
        name: section
        for name, section in settings.workloads.items()
        if not workload(name).is_search
    }
    return settings.model_copy(update={"workloads": sections})


def _plan_models(
    settings: Settings, mapping: Plan, earlier: Contents | None, *, json: bool
) -> None:
    """Print what training needs, and the duration of the suite's searches."""
    import json as json_

    from vflops.cli.terminal import console
    from vflops.cli.train.plan_search import show_search
    from vflops.run.estimate import estimate_run
    from vflops.run.jobs import placement_order

    trainings = _without_searches(settings)
    estimates = estimate_run(trainings, mapping, earlier, console.working)
    for estimate in estimates.values():
        if estimate.real_run is not None:
            console.say(f"warning: {estimate.real_run}")
    order = placement_order(mapping.models, settings)
    if json:
        workloads = {name: estimate.model_dump(mode="json") for name, estimate in estimates.items()}
        placements = [
            {"model": model, "wave": placement.wave, "places": placement.places}
            for model, placement in zip(order, mapping.placements, strict=True)
        ]
        planned_run = {
            "rehearsal": settings.launch.rehearse,
            "workloads": workloads,
            "placements": placements,
        }
        typer.echo(json_.dumps(planned_run, indent=1))
        return
    _show(mapping, order, estimates)
    for name, section in settings.workloads.items():
        if name not in trainings.workloads:
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
