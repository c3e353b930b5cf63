"""``vflops plan`` of a search: where its workers go, and for how long; its work is not foreseen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from vflops.bagging.plan import Node
    from vflops.config.settings import Settings


def searched(settings: Settings) -> dict[str, Any] | None:
    """The settings of the workload, if a search is all that the run does."""
    sections = list(settings.workloads.values())
    return sections[0] if len(sections) == 1 and "search" in sections[0] else None


def plan_search(settings: Settings, there: Sequence[Node], *, json: bool) -> None:
    """Say where the workers of a search would be; refused where they find no place."""
    import json as json_

    from vflops.bagging.estimate import places
    from vflops.bagging.plan import plan
    from vflops.cli import console
    from vflops.cli.columns import columns, heading
    from vflops.errors import UsageError
    from vflops.score.words import count
    from vflops.units import seconds

    section = searched(settings)
    assert section is not None
    search, ranks = section["search"], section["train"]["ranks"]
    try:
        mapping = plan(there, search["workers"], ranks)
    except UsageError as error:
        slots = sum(node.slots // ranks for node in there)
        raise UsageError(
            f"{search['workers']} workers of {count(ranks, 'rank')} do not fit",
            cure=f"{slots} do: --workers {slots}" if slots else error.cure,
        ) from error
    if json:
        found = [{"worker": each.model, "places": each.places} for each in mapping.placements]
        typer.echo(json_.dumps({"placements": found, "operations": None}, indent=1))
        return
    workers = count(search["workers"], "worker")
    typer.echo(heading(f"{workers} of {count(ranks, 'rank')}"))
    table = [[f"{each.model + 1:,}", places(each)] for each in mapping.placements]
    typer.echo(columns([["worker", "node: slots"], *table], right=(0,)))
    typer.echo()
    most = search["candidates"]
    ends = f", or {count(most, 'candidate')} of each worker" if most else ""
    facts = [
        ["time", f"{seconds(search['duration_s'])}{ends}"],
        ["operations", "not known before: what is trained is what the search finds"],
        ["repeated as fixed work", "vflops replay RUN, once it has ended"],
    ]
    typer.echo(columns(facts))
    again = f"vflops run automl --profile {settings.profile} --workers {search['workers']}"
    on = settings.launch.on
    console.next_step(again + f" --ranks {ranks}" + f" --on {on}" * (on != "local"), "to do it")
