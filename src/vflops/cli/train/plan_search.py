"""``vflops plan`` for a search: the placement of its workers and its duration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from vflops.config.settings import Settings
    from vflops.launch.placement import Node, Plan
    from vflops.record.readout.contents import Contents

_SHOWN = 3
"""Number of workers shown at either end of a long plan."""


def search_section(settings: Settings) -> dict[str, Any] | None:
    """Return the settings of the workload if the run is a single search, else None."""
    from vflops.workloads.contract.registry import workload

    if len(settings.workloads) != 1:
        return None
    ((name, section),) = settings.workloads.items()
    return section if workload(name).is_search else None


def show_search(
    name: str, section: Mapping[str, Any], earlier: Contents | None = None, on: str = "local"
) -> None:
    """Print what is known about a search before it runs.

    ``earlier`` is a run whose speed it will have, or else the newest one here with this
    ``launch.on``.
    """
    from vflops.cli.terminal.columns import columns, heading
    from vflops.units import count, seconds

    search = section["search"]
    limit = search["candidates"]
    kept = "the weights of every candidate stay for audits; train.segments=0 deletes them"
    candidate_limit = f", or {count(limit, 'candidate')} per worker" if limit else ""
    facts = [
        ["workers", f"{search['workers']:,}"],
        ["time", f"{seconds(search['duration_s'])}{candidate_limit}"],
        ["operations", "not known in advance: they depend on the candidates"],
        *_until_valid(section, earlier, on),
        *([["disk", kept]] if section["train"]["segments"] else []),
        ["repeat as fixed work", "vflops replay RUN, once it has finished"],
    ]
    typer.echo("\n" + heading(name))
    typer.echo(columns(facts))


def _until_valid(section: Mapping[str, Any], earlier: Contents | None, on: str) -> list[list[str]]:
    """Return how long the search must last to be valid, and warn if that is longer than planned."""
    from vflops.cli.terminal import console
    from vflops.run.estimate import search_speed
    from vflops.run.search_speeds import known_speed
    from vflops.workloads.automl import search_length
    from vflops.workloads.automl.settings import AutomlSettings
    from vflops.workloads.image_classification.expected import expected

    settings = AutomlSettings.model_validate(section)
    facts = expected(settings).facts
    if earlier is None:
        speed = known_speed(on, settings.train, Path("runs"))
    else:
        ops_per_s = search_speed(settings.train, earlier)
        name = earlier.folder.path.name
        speed = search_length.KnownSpeed(ops_per_s, name) if ops_per_s else None
    measured = speed.ops_per_s if speed is not None and not speed.is_ceiling else None
    for warning in search_length.warnings(settings, facts, measured):
        console.say(f"warning: {warning}")
    return search_length.planned_rows(settings, facts, speed)


def place_workers(available: Sequence[Node], section: Mapping[str, Any]) -> Plan:
    """Return the placement of a search's workers; raise if they do not fit."""
    from vflops.errors import UsageError
    from vflops.launch.placement import plan
    from vflops.units import count

    workers, ranks = section["search"]["workers"], section["train"]["ranks"]
    try:
        return plan(available, workers, ranks)
    except UsageError as error:
        slots = sum(node.slots // ranks for node in available)
        raise UsageError(
            f"{workers} workers of {count(ranks, 'rank')} do not fit",
            hint=f"{slots} would fit: --workers {slots}" if slots else error.hint,
        ) from error


def plan_search(
    settings: Settings, mapping: Plan, earlier: Contents | None, *, json: bool = False
) -> None:
    """Print the placement of a search's workers and its duration."""
    import json as json_

    from vflops.cli.terminal.columns import columns, heading
    from vflops.run.training_cost import placement_text
    from vflops.units import count

    if json:
        placements = [
            {"worker": placement.model, "places": placement.places}
            for placement in mapping.placements
        ]
        typer.echo(json_.dumps({"placements": placements, "operations": None}, indent=1))
        return
    typer.echo(heading(f"{count(mapping.models, 'worker')} of {count(mapping.ranks, 'rank')}"))
    table = [
        [f"{placement.model + 1:,}", placement_text(placement)] for placement in mapping.placements
    ]
    if len(table) > 2 * _SHOWN + 2:
        table[_SHOWN:-_SHOWN] = [["…", f"{len(table) - 2 * _SHOWN:,} more"]]
    typer.echo(columns([["worker", "node: slots"], *table], right=(0,)))
    ((name, section),) = settings.workloads.items()
    show_search(name, section, earlier, settings.launch.on)
