"""The block of the report on compute nodes: their kinds, and the spread between equal nodes."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from vflops.metrics import mean
from vflops.publish.pages.chart_style import SERIES, apply_style, data, tooltips
from vflops.publish.report.training_charts import WIDTH
from vflops.record.readout.contents import Contents
from vflops.results.score import node_text
from vflops.results.score.node_spread import nodes_by_kind, quick_values
from vflops.results.score.score_file import Score
from vflops.units import percent

_BINS = 40
"""The largest number of dots of a distribution, whatever the number of nodes."""


@dataclass(frozen=True)
class NodesBlock:
    """What the report shows for the compute nodes; its size does not depend on their number."""

    gist: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    lines: list[str]
    distribution: dict[str, Any] | None
    """How many nodes have which speed; None if no measurement has several values."""


def nodes_block(contents: Contents, scored: Score) -> NodesBlock | None:
    """Return the block; None if no compute node was measured."""
    if not scored.node_kinds:
        return None
    return NodesBlock(
        gist=node_text.nodes_line(scored.node_kinds) or "",
        columns=node_text.COLUMNS,
        rows=node_text.node_rows(scored.node_kinds),
        lines=node_text.node_lines(scored.node_kinds),
        distribution=_distribution(contents),
    )


def distribution_rows(contents: Contents) -> list[dict[str, Any]]:
    """Return the dots: the speed relative to the median of equal nodes, and how many have it."""
    shares: dict[str, list[float]] = {}
    several = len(contents.once(nodes_by_kind)) > 1
    for kind, nodes in contents.once(nodes_by_kind).items():
        for key, values in quick_values(nodes).items():
            if len(values) > 1:
                median = statistics.median(item.value for item in values)
                name = " ".join(filter(None, key)) + (f", {kind}" if several else "")
                shares[name] = [item.value / median for item in values]
    every = [share for of_one in shares.values() for share in of_one]
    if not every:
        return []
    low, high = min(every), max(every)
    width = (high - low) / _BINS or 0.01
    rows = []
    for name, of_one in shares.items():
        bins: dict[int, list[float]] = {}
        for share in of_one:
            bins.setdefault(min(int((share - low) / width), _BINS - 1), []).append(share)
        rows += [
            {
                "measured": name,
                "share": mean(bins[place]),
                "count": len(bins[place]),
                "speed": f"{percent(mean(bins[place]))} of the median",
            }
            for place in sorted(bins)
        ]
    return rows


def _distribution(contents: Contents) -> dict[str, Any] | None:
    import altair as alt

    rows = distribution_rows(contents)
    if not rows:
        return None
    names = list(dict.fromkeys(row["measured"] for row in rows))
    # A facet would not fit the width of the page; an area shows one slow node among thousands.
    chart = (
        alt.Chart(data(rows))
        .mark_circle(opacity=0.7)
        .encode(
            x=alt.X("share:Q")
            .scale(zero=False, padding=20)
            .title("speed relative to the median of equal nodes")
            .axis(format=".1%"),
            y=alt.Y("measured:N").title(None).sort(names).axis(grid=True, labelLimit=220),
            size=alt.Size("count:Q").scale(type="sqrt", range=[30, 900]).legend(None),
            color=alt.Color("measured:N")
            .scale(domain=names, range=[SERIES[n % len(SERIES)] for n in range(len(names))])
            .legend(None),
            tooltip=tooltips("measured:N", "speed:N", "count:Q"),
        )
        .properties(width=WIDTH, height=60 * len(names))
    )
    return apply_style(chart)
