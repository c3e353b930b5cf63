"""``vflops plan`` of a search: where its workers go, and for how long; its work is not foreseen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from vflops.config.settings import Settings
    from vflops.launch.placement import Node, Plan

_SHOWN = 3
"""Workers at either end of a long mapping that are shown."""


def searched(settings: Settings) -> dict[str, Any] | None:
    """Return the settings of the workload, if a search is all that the run does."""
    sections = list(settings.workloads.values())
    return sections[0] if len(sections) == 1 and "search" in sections[0] else None


def show_search(name: str, search: Mapping[str, Any]) -> None:
    """What can be said of a search before it is done."""
    from vflops.cli.terminal.columns import columns, heading
    from vflops.results.score.figure_text import count
    from vflops.units import seconds

    most = search["candidates"]
    ends = f", or {count(most, 'candidate')} of each worker" if most else ""
    facts = [
        ["workers", f"{search['workers']:,}"],
        ["time", f"{seconds(search['duration_s'])}{ends}"],
        ["operations", "not known before: what is trained is what the search finds"],
        ["repeated as fixed work", "vflops replay RUN, once it has ended"],
    ]
    typer.echo("\n" + heading(name))
    typer.echo(columns(facts))


def refuse_ensemble(settings: Settings, given: Mapping[str, object]) -> None:
    """Refuse options that a search has no use for."""
    from vflops.errors import UsageError

    asked = [option for option, value in given.items() if value]
    if asked:
        raise UsageError(
            f"{next(iter(settings.workloads))} is a search: it has workers, and no {asked[0]}",
            hint="take --workers W",
        )


def placed(there: Sequence[Node], section: Mapping[str, Any]) -> Plan:
    """Return where the workers of a search would be; refused where they find no place."""
    from vflops.errors import UsageError
    from vflops.launch.placement import plan
    from vflops.results.score.figure_text import count

    workers, ranks = section["search"]["workers"], section["train"]["ranks"]
    try:
        return plan(there, workers, ranks)
    except UsageError as error:
        slots = sum(node.slots // ranks for node in there)
        raise UsageError(
            f"{workers} workers of {count(ranks, 'rank')} do not fit",
            hint=f"{slots} do: --workers {slots}" if slots else error.hint,
        ) from error


def plan_search(settings: Settings, mapping: Plan, *, json: bool = False) -> None:
    """Say where the workers of a search would be, and for how long."""
    import json as json_

    from vflops.cli.terminal.columns import columns, heading
    from vflops.results.score.figure_text import count
    from vflops.run.training_cost import placement_text

    if json:
        found = [{"worker": each.model, "places": each.places} for each in mapping.placements]
        typer.echo(json_.dumps({"placements": found, "operations": None}, indent=1))
        return
    typer.echo(heading(f"{count(mapping.models, 'worker')} of {count(mapping.ranks, 'rank')}"))
    table = [[f"{each.model + 1:,}", placement_text(each)] for each in mapping.placements]
    if len(table) > 2 * _SHOWN + 2:
        table[_SHOWN:-_SHOWN] = [["…", f"{len(table) - 2 * _SHOWN:,} more"]]
    typer.echo(columns([["worker", "node: slots"], *table], right=(0,)))
    ((name, section),) = settings.workloads.items()
    show_search(name, section["search"])
