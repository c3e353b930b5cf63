"""``vflops plan``: what a run would do and need; nothing is run, and no run folder is made."""

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
"""Models at either end of a long mapping that are shown."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(plan)


def plan(
    workload: Annotated[
        str | None, typer.Argument(help="What to train, see `vflops list`; everything by default.")
    ] = None,
    profile: options.Profile = None,
    data: Annotated[
        Path | None, typer.Option(help="Your own data, packed; synthetic data by default.")
    ] = None,
    models: Annotated[
        int | None, typer.Option(help="Base models, M; by default as many as fit.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Workers of a search.")] = None,
    for_: Annotated[
        str | None, typer.Option("--for", help="How long a search takes: 90s, 30m, 1h, 1h30m.")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(help="Ranks of a model, P; by default the slots of a node.")
    ] = None,
    scale: Annotated[int | None, typer.Option(help="M × P, where one of them is open.")] = None,
    on: options.On = None,
    nodes: Annotated[
        int | None, typer.Option(help="Nodes of a machine that is not here.", min=1)
    ] = None,
    slots: Annotated[
        int | None, typer.Option(help="With --nodes: ranks that a node takes.", min=1)
    ] = None,
    waves: Annotated[
        bool, typer.Option("--waves", help="Let models that find no place wait for others.")
    ] = False,
    twins: Annotated[bool, typer.Option("--twins", help="Each model is trained twice.")] = False,
    repeat: Annotated[int | None, typer.Option(help="Ensembles, each with the next seed.")] = None,
    seed: options.Seed = None,
    like: Annotated[
        Path | None, typer.Option(help="An earlier run that says how fast it would be.")
    ] = None,
    config: options.Config = None,
    set_: options.Set = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Say what a run would do and need. Places, operations, bytes, memory, time."""
    from vflops.cli.terminal import console
    from vflops.cli.train.plan_search import placed as placed_workers
    from vflops.cli.train.plan_search import plan_search, refuse_ensemble, searched
    from vflops.launch.factory import backend
    from vflops.launch.nodes import known_nodes
    from vflops.launch.placement import defaults
    from vflops.launch.placement import plan as placed
    from vflops.run.estimate import check_searches
    from vflops.run.validate import check_all

    flags: dict[str, object] = {
        "data": data,
        "launch.on": on,
        "bagging.models": models,
        "train.ranks": ranks,
        "bagging.waves": "true" if waves else None,
        "bagging.twins": "true" if twins else None,
        "repeat": repeat,
    }
    flags |= options.search_flags(workload, workers, for_)
    given = [
        *(set_ or []),
        *(f"{key}={value}" for key, value in flags.items() if value is not None),
    ]
    what = workload or "suite"
    asked = options.settings(profile, seed, config, given, workloads=what)
    devices = {section["train"]["device"] for section in asked.workloads.values()}
    device = devices.pop() if len(devices) == 1 else "auto"
    there = known_nodes(asked.launch, device, nodes, slots)
    search = searched(asked)
    if search is not None:
        p = search["train"]["ranks"]
        counts: dict[str, object] = {"--workers": search["search"]["workers"], "--for": for_}
        no_use = {"--models": models, "--scale": scale, "--like": like, "--waves": waves}
        refuse_ensemble(asked, no_use)
        mapping = placed_workers(there, search)
    else:
        own_models, own_ranks = _wanted(asked)
        m, p = defaults(there, models or own_models, ranks or own_ranks, scale=scale)
        counts = {"--models": m}
        mapping = placed(there, m, p, waves=asked.bagging.waves)
        given += [f"bagging.models={m}", f"models={m}", f"train.ranks={p}"]
    added = []
    here = backend(asked.launch.on).is_this_machine
    if not here and asked.launch.ranks_per_node is None:
        added = [f"launch.ranks_per_node={min(each.slots for each in there)}"]
    settings = options.settings(asked.profile, seed, config, [*given, *added], workloads=what)
    backend(settings.launch.on).check_layout(there, p)
    check_all(settings, here=nodes is None)
    check_searches(settings)
    if search is not None:
        plan_search(settings, mapping, json=json)
    else:
        earlier = console.read_run(like) if like else None
        _plan_models(settings, mapping, earlier, json=json)
    if json:
        return
    said = {"--profile": settings.profile, **counts, "--ranks": p, "--on": on, "--data": data}
    said |= {"--repeat": repeat, "--seed": seed, "--config": config}
    again = ["vflops", "run", *([workload] if workload else [])]
    again += [f"{w}" for name in said if said[name] is not None for w in (name, said[name])]
    again += ["--waves"] * settings.bagging.waves + ["--twins"] * settings.bagging.twins
    again += [word for each in (*(set_ or ()), *added) for word in ("--set", each)]
    why = "there" if nodes and here else "to do it"
    console.next_step(shlex.join(again), why)


def _wanted(settings: Settings) -> tuple[int | None, int | None]:
    """M and P that a file or ``--set`` gave; 1 is what they are when nobody does.

    What cannot be bagged is one model.
    """
    from vflops.workloads.contract.registry import workload

    bagged = all(workload(name).can_be_bagged for name in settings.workloads)
    models = settings.bagging.models
    ranks = max(section["train"]["ranks"] for section in settings.workloads.values())
    return models if models > 1 or not bagged else None, ranks if ranks > 1 else None


def _plan_models(
    settings: Settings, mapping: Plan, earlier: Contents | None, *, json: bool
) -> None:
    """Say what the trainings take, and of the searches of a suite for how long they are."""
    import json as json_

    from vflops.cli.terminal import console
    from vflops.cli.train.plan_search import show_search
    from vflops.run.estimate import estimate_run
    from vflops.run.jobs import placement_order

    trained = {name: each for name, each in settings.workloads.items() if "search" not in each}
    foreseen = settings.model_copy(update={"workloads": trained})
    found = estimate_run(foreseen, mapping, earlier, console.working)
    order = placement_order(mapping.models, settings)
    if json:
        workloads = {name: each.model_dump(mode="json") for name, each in found.items()}
        placement_text = [
            {"model": model, "wave": each.wave, "places": each.places}
            for model, each in zip(order, mapping.placements, strict=True)
        ]
        typer.echo(json_.dumps({"workloads": workloads, "placements": placement_text}, indent=1))
        return
    _show(mapping, order, found)
    for name, section in settings.workloads.items():
        if name not in trained:
            show_search(name, section["search"])


def _show(mapping: Plan, order: Sequence[int], found: Mapping[str, Estimate]) -> None:
    """``order``: the models as they are placed."""
    from vflops.cli.terminal.columns import columns, heading
    from vflops.results.score.figure_text import count
    from vflops.run.training_cost import estimate_rows, placement_text

    models, ranks = count(mapping.models, "model"), count(mapping.ranks, "rank")
    typer.echo(heading(f"{models} of {ranks}"))
    shown = tuple(zip(order, mapping.placements, strict=True))
    cut = len(shown) > 2 * _SHOWN + 2
    lines = (*shown[:_SHOWN], *shown[-_SHOWN:]) if cut else shown
    table = [[f"{model + 1:,}", str(each.wave + 1), placement_text(each)] for model, each in lines]
    if cut:
        table.insert(_SHOWN, ["…", "", f"{len(shown) - len(lines):,} more"])
    typer.echo(columns([["model", "wave", "node: slots"], *table], right=(0, 1)))
    for name, each in found.items():
        typer.echo("\n" + heading(name))
        typer.echo(columns(estimate_rows(each)))
