"""``vflops plan``: what a run would do and need, without running anything."""

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
    scale: Annotated[
        int | None, typer.Option(help="M × P, if only one of --models and --ranks is given.")
    ] = None,
    on: options.On = None,
    nodes: Annotated[
        int | None, typer.Option(help="Number of nodes of another machine.", min=1)
    ] = None,
    slots: Annotated[int | None, typer.Option(help="With --nodes: ranks per node.", min=1)] = None,
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
    available = known_nodes(asked.launch, device, nodes, slots)
    search = searched(asked)
    if search is not None:
        p = search["train"]["ranks"]
        counts: dict[str, object] = {"--workers": search["search"]["workers"], "--for": for_}
        unused = {"--models": models, "--scale": scale, "--like": like, "--waves": waves}
        refuse_ensemble(asked, unused)
        mapping = placed_workers(available, search)
    else:
        set_models, set_ranks = _set_counts(asked)
        m, p = defaults(available, models or set_models, ranks or set_ranks, scale=scale)
        counts = {"--models": m}
        mapping = placed(available, m, p, waves=asked.bagging.waves)
        given += [f"bagging.models={m}", f"models={m}", f"train.ranks={p}"]
    added = []
    here = backend(asked.launch.on).is_this_machine
    if not here and asked.launch.ranks_per_node is None:
        added = [f"launch.ranks_per_node={min(node.slots for node in available)}"]
    settings = options.settings(asked.profile, seed, config, [*given, *added], workloads=what)
    backend(settings.launch.on).check_layout(available, p)
    check_all(settings, here=nodes is None)
    check_searches(settings)
    if search is not None:
        plan_search(settings, mapping, json=json)
    else:
        earlier = console.read_run(like) if like else None
        _plan_models(settings, mapping, earlier, json=json)
    if json:
        return
    shown = {"--profile": settings.profile, **counts, "--ranks": p, "--on": on, "--data": data}
    shown |= {"--repeat": repeat, "--seed": seed, "--config": config}
    command = ["vflops", "run", *([workload] if workload else [])]
    command += [f"{w}" for name in shown if shown[name] is not None for w in (name, shown[name])]
    command += ["--waves"] * settings.bagging.waves + ["--twins"] * settings.bagging.twins
    for assignment in (*(set_ or ()), *added):
        command += ["--set", assignment]
    why = "run it there" if nodes and here else "run it"
    console.next_step(shlex.join(command), why)


def _set_counts(settings: Settings) -> tuple[int | None, int | None]:
    """Return M and P from a file or ``--set``; None if they are the default, 1.

    Workloads that cannot be bagged have one model.
    """
    from vflops.workloads.contract.registry import workload

    bagged = all(workload(name).can_be_bagged for name in settings.workloads)
    models = settings.bagging.models
    ranks = max(section["train"]["ranks"] for section in settings.workloads.values())
    return models if models > 1 or not bagged else None, ranks if ranks > 1 else None


def _plan_models(
    settings: Settings, mapping: Plan, earlier: Contents | None, *, json: bool
) -> None:
    """Show the needs of the trainings, and the duration of the suite's searches."""
    import json as json_

    from vflops.cli.terminal import console
    from vflops.cli.train.plan_search import show_search
    from vflops.run.estimate import estimate_run
    from vflops.run.jobs import placement_order
    from vflops.workloads.contract.registry import workload

    trained = {
        name: section
        for name, section in settings.workloads.items()
        if not workload(name).is_search
    }
    trainings = settings.model_copy(update={"workloads": trained})
    estimates = estimate_run(trainings, mapping, earlier, console.working)
    order = placement_order(mapping.models, settings)
    if json:
        workloads = {name: estimate.model_dump(mode="json") for name, estimate in estimates.items()}
        placement_text = [
            {"model": model, "wave": placement.wave, "places": placement.places}
            for model, placement in zip(order, mapping.placements, strict=True)
        ]
        typer.echo(json_.dumps({"workloads": workloads, "placements": placement_text}, indent=1))
        return
    _show(mapping, order, estimates)
    for name, section in settings.workloads.items():
        if name not in trained:
            show_search(name, section["search"])


def _show(mapping: Plan, order: Sequence[int], estimates: Mapping[str, Estimate]) -> None:
    """Print the placement of the models, in ``order``, and the estimates."""
    from vflops.cli.terminal.columns import columns, heading
    from vflops.results.score.figure_text import count
    from vflops.run.training_cost import estimate_rows, placement_text

    models, ranks = count(mapping.models, "model"), count(mapping.ranks, "rank")
    typer.echo(heading(f"{models} of {ranks}"))
    shown = tuple(zip(order, mapping.placements, strict=True))
    cut = len(shown) > 2 * _SHOWN + 2
    lines = (*shown[:_SHOWN], *shown[-_SHOWN:]) if cut else shown
    table = [
        [f"{model + 1:,}", str(placement.wave + 1), placement_text(placement)]
        for model, placement in lines
    ]
    if cut:
        table.insert(_SHOWN, ["…", "", f"{len(shown) - len(lines):,} more"])
    typer.echo(columns([["model", "wave", "node: slots"], *table], right=(0, 1)))
    for name, estimate in estimates.items():
        typer.echo("\n" + heading(name))
        typer.echo(columns(estimate_rows(estimate)))
