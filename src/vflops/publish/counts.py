"""Operation counts as a console table, as JSON and as a page."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflops.counting.conventions import Ops
from vflops.counting.count import Count, Row
from vflops.metrics.summation import sum_in_order
from vflops.record.files import atomic
from vflops.units import integer, percent, quantity, shape

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Formatter = Callable[[int], str]


def as_tables(counts: Sequence[Count], by: str, width: int) -> RenderableType:
    """Return console tables for one convention, or for two conventions side by side.

    Counts are exact if the console is at least 80 columns wide, and rounded otherwise.
    """
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(_heading(counts[0]), style="bold")]
    if len(counts) == 1:
        parts.append(_one_convention(counts[0], by, _formatter(width)))
    else:
        parts.append(_two_conventions(counts[0], counts[1], by, _formatter(width)))
    for count in counts:
        parts.extend(Text(line, style="dim") for line in _footnotes(count))
    return Group(*parts)


def as_json(counts: Sequence[Count], by: str) -> str:
    """Return the counts as JSON, with exact integers and the operators without a rule."""
    data = [_count_data(count, by) for count in counts]
    return json.dumps(data[0] if len(data) == 1 else data, indent=2, ensure_ascii=False) + "\n"


def export(counts: Sequence[Count], by: str, path: Path, format: str) -> None:
    """Write the counts to ``path``: a self-contained page (``html``) or the graph (``graph``)."""
    if format == "graph":
        counts[0].graph.write(path)
        return
    from vflops.publish.pages.page import render

    tables = [
        {
            "title": f"{count.convention.title} ({count.convention.id}/{count.convention.version})",
            "source": count.convention.source,
            "rows": _rows(count, by),
            "total": count.total,
            "notes": _footnotes(count),
        }
        for count in counts
    ]
    text = render("count.html", title=_heading(counts[0]), tables=tables, by=by, integer=integer)
    atomic.write_text(path, text)


def _heading(count: Count) -> str:
    graph = count.graph
    inputs = ", ".join(shape(graph.values[index].shape[1:]) or "scalar" for index in graph.inputs)
    parameters = integer(graph.parameter_count)
    return f"{graph.model}: {parameters} parameters, input {inputs}, batch {graph.batch}"


def _rows(count: Count, by: str) -> list[Row]:
    return count.by_kind if by == "kind" else count.by_layer


def _formatter(width: int) -> Formatter:
    return integer if width >= 80 else lambda value: quantity(value, "").strip()


def _one_convention(count: Count, by: str, format_count: Formatter) -> RenderableType:
    table = _table(by)
    table.title = f"{count.convention.title} · {count.convention.source}"
    recomputes = count.total.recompute > 0
    for heading in ("forward", "backward", "update", "total", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    if recomputes:
        table.add_column("recompute", justify="right", no_wrap=True)
    total = count.total.total or 1
    for row in _rows(count, by):
        if row.ruled:
            again = [format_count(row.ops.recompute)] if recomputes else []
            share = percent(row.ops.total / total)
            table.add_row(row.name, *_format_ops(row.ops, format_count), share, *again)
        else:
            table.add_row(row.name, "no rule", style="dim")
    table.add_section()
    again = ["", format_count(count.total.recompute)] if recomputes else []
    table.add_row("total", *_format_ops(count.total, format_count), *again, style="bold")
    return table


def _table(by: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=0)  # exact integers fit 80 columns
    table.title_justify, table.title_style = "left", "dim"
    table.add_column(by, overflow="fold", min_width=len("normalization") if by == "kind" else None)
    return table


def _format_ops(ops: Ops, format_count: Formatter) -> list[str]:
    return [format_count(value) for value in (ops.forward, ops.backward, ops.update, ops.total)]


def _two_conventions(
    first: Count, second: Count, by: str, format_count: Formatter
) -> RenderableType:
    table = _table(by)
    for count in (first, second):
        table.add_column(f"{count.convention.id}\nforward", justify="right", no_wrap=True)
        table.add_column("backward\n+ update", justify="right", no_wrap=True)
    table.add_column("first ÷\nsecond", justify="right")
    others = {row.name: row for row in _rows(second, by)}
    for row in _rows(first, by):
        other = others[row.name]
        table.add_row(
            row.name, *_pair(row, format_count), *_pair(other, format_count), _ratio(row, other)
        )
    table.add_section()
    totals = [Row("total", 0, count.total, True) for count in (first, second)]
    pairs = (*_pair(totals[0], format_count), *_pair(totals[1], format_count))
    table.add_row("total", *pairs, _ratio(*totals), style="bold")
    return table


def _pair(row: Row, format_count: Formatter) -> tuple[str, str]:
    if not row.ruled:
        return "no rule", ""
    return format_count(row.ops.forward), format_count(row.ops.backward + row.ops.update)


def _ratio(first: Row, second: Row) -> str:
    if not (first.ruled and second.ruled and second.ops.total):
        return ""
    return f"{first.ops.total / second.ops.total:.4f}"


def _footnotes(count: Count) -> list[str]:
    total = count.total
    lines = []
    if total.forward:
        backward_ops = total.backward + total.update
        lines.append(
            f"{count.convention.id}: {quantity(total.total, 'FLOP')} per batch, "
            f"{quantity(total.total / count.graph.batch, 'FLOP')} per sample, "
            f"backward and update are {backward_ops / total.forward:.4f} × forward"
        )
    if total.recompute:
        lines.append(
            f"{count.convention.id}: activation checkpointing recomputes "
            f"{quantity(total.recompute, 'FLOP')} per batch, which the total does not contain; "
            f"with it, the hardware executes {quantity(total.total + total.recompute, 'FLOP')}"
        )
    lines.extend(f"note: {note}" for note in count.notes)
    uncounted = count.uncounted
    if uncounted:
        shares = ", ".join(
            f"{item.op.removesuffix('.default')} ×{item.nodes} ({percent(item.share, digits=2)})"
            for item in uncounted
        )
        executed = percent(sum_in_order(item.executed_share for item in uncounted), digits=2)
        lines.append(
            f"{count.convention.id} has no rule for these operators (share of elements), "
            f"which are {executed} of the executed operations: {shares}"
        )
    return lines


def _count_data(count: Count, by: str) -> dict[str, Any]:
    graph, total = count.graph, count.total
    return {
        "model": graph.model,
        "batch": graph.batch,
        "parameters": graph.parameter_count,
        "rules": {"id": count.convention.id, "version": count.convention.version},
        "by": by,
        "rows": [
            {
                "name": row.name,
                "operators": row.nodes,
                **(_ops_data(row) if row.ruled else _NO_RULE),
            }
            for row in _rows(count, by)
        ],
        "forward": total.forward,
        "backward": total.backward,
        "update": total.update,
        "total": total.total,
        "recompute": total.recompute,
        "notes": list(count.notes),
        "uncounted": [
            {
                "op": operator.op,
                "kind": operator.kind,
                "operators": operator.nodes,
                "share": operator.share,
                "executed_share": operator.executed_share,
            }
            for operator in count.uncounted
        ],
    }


_NO_RULE = {
    "forward": None,
    "backward": None,
    "update": None,
    "recompute": None,
    "reason": "no rule",
}


def _ops_data(row: Row) -> dict[str, int]:
    ops = row.ops
    return {
        "forward": ops.forward,
        "backward": ops.backward,
        "update": ops.update,
        "recompute": ops.recompute,
    }
