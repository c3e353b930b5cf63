"""A score as a console table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vflops.score.record import Score
from vflops.units import percent, quantity

if TYPE_CHECKING:
    from rich.console import RenderableType


def as_table(score: Score) -> RenderableType:
    """The figures that were measured or counted, with what they rest on."""
    from rich import box
    from rich.console import Group
    from rich.table import Table

    parts: list[RenderableType] = []
    if score.ceilings:
        ceilings = Table(title="ceilings", title_justify="left", box=box.SIMPLE_HEAD)
        for heading in ("benchmark", "case", "precision"):
            ceilings.add_column(heading)
        for heading in ("median", "spread"):
            ceilings.add_column(heading, justify="right", no_wrap=True)
        for item in score.ceilings:
            if item.value is not None:
                ceilings.add_row(
                    item.benchmark,
                    item.case,
                    item.precision or "",
                    quantity(item.value, item.unit),
                    percent(item.spread),
                )
        absent = sum(item.value is None for item in score.ceilings)
        if absent:
            ceilings.caption = f"{absent} not measured; the reasons are in score.json"
        parts.append(ceilings)
    if score.models:
        models = Table(title="models, a sample", title_justify="left", box=box.SIMPLE_HEAD)
        models.add_column("model")
        models.add_column("rules")
        for heading in ("forward", "training", "at most here"):
            models.add_column(heading, justify="right", no_wrap=True)
        for model in score.models:
            for count in model.counts:
                bound = model.bound
                most = (
                    f"{quantity(bound.samples_per_s, 'samples/s')} in {bound.precision}"
                    if bound and bound.rules == count.rules
                    else ""
                )
                forward, total = count.ops_forward, count.ops_total
                figures = (quantity(forward, "FLOP"), quantity(total, "FLOP"))
                models.add_row(model.model, count.rules, *figures, most)
        parts.append(models)
    return Group(*parts)
