"""Operation counts as a console table, as JSON and as a page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    """Return console tables for one convention, or for several conventions side by side.

    Counts are exact if the console is at least 80 columns wide and they fit, and rounded otherwise.
    """
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(_heading(counts[0]), style="bold")]
    totals = [line for count in counts for line in _totals(count)]
    if len(counts) == 1:
        parts.append(_one_convention(counts[0], by, _ops_formatter(counts, width)))
    elif len(counts) == 2:
        parts.append(_two_conventions(counts[0], counts[1], by, _ops_formatter(counts, width)))
    else:
        parts += [*_side_by_side(counts, by, width), _comparison(counts, width)]
        totals = []  # the comparison has them
    lines = (*totals, *_backward_notes(counts), *_uncounted(counts))
    parts.extend(Text(line, style="dim") for line in lines)
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
            "id": count.convention.id,
            "rows": _rows(count, by),
            "total": count.total,
            "per_token": None if count.per_token is None else _exact(count.per_token),
            "notes": [*_totals(count), *_backward_notes([count]), *_uncounted([count])],
        }
        for count in counts
    ]
    text = render("count.html", title=_heading(counts[0]), tables=tables, by=by, integer=integer)
    atomic.write_text(path, text)


def _heading(count: Count) -> str:
    graph = count.graph
    shapes = [shape(graph.values[index].shape[1:]) or "scalar" for index in graph.inputs]
    inputs = f"input {', '.join(shapes)}"
    if count.tokens is not None and len(set(shapes)) == 1:  # tokens, and those to predict
        inputs = f"{integer(count.tokens // graph.batch)} tokens per sample"
    parameters = integer(graph.parameter_count)
    return f"{graph.model}: {parameters} parameters, {inputs}, batch {graph.batch}"


def _rows(count: Count, by: str) -> list[Row]:
    return count.by_kind if by == "kind" else count.by_layer


def _ops_formatter(counts: Sequence[Count], width: int) -> Formatter:
    """Return how to write the counts of a table with four numbers and a ratio in each row."""
    totals = [count.total for count in counts]
    if len(totals) == 1:
        numbers = [totals[0].forward, totals[0].backward, totals[0].update, totals[0].total]
    else:
        numbers = [n for ops in totals for n in (ops.forward, ops.backward + ops.update)]
    return _formatter(width, numbers, _SHORTEST_NAME + len("1.0000") + 7)


def _formatter(width: int, numbers: Iterable[int], other_width: int) -> Formatter:
    """Return exact integers if the widest ``numbers`` of all columns fit, else rounded ones.

    The rest of the table, with the lines between columns, needs ``other_width``.
    """
    needed = sum(len(integer(number)) for number in numbers) + other_width
    return integer if needed <= width and width >= 80 else _rounded


_SHORTEST_NAME = len("normalization")


def _rounded(value: float) -> str:
    return quantity(value, "").strip()


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
    table.add_column(by, overflow="fold", min_width=_SHORTEST_NAME if by == "kind" else None)
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


def _side_by_side(counts: Sequence[Count], by: str, width: int) -> Iterator[Table]:
    """Yield tables of totals with one column per convention, as many as fit in a table."""
    names = [row.name for row in _rows(counts[0], by)]
    columns = [_column(count, by, names) for count in counts]
    name_width = max(min(max(map(len, names)), width // 3), _SHORTEST_NAME)
    widest = [max(number for number in column if number is not None) for column in columns]
    format_count = _formatter(width, widest, name_width + 2 + len(columns))
    cells = [
        ["no rule" if total is None else format_count(total) for total in column]
        for column in columns
    ]
    widths = [
        1 + max(map(len, (count.convention.id, *column)))
        for count, column in zip(counts, cells, strict=True)
    ]
    for shown in _that_fit(widths, width - name_width - 2):
        table = _table(by)
        for column in shown:
            heading = f"{counts[column].convention.id}\ntotal"
            table.add_column(heading, justify="right", no_wrap=True)
        for number, name in enumerate(names):
            table.add_row(name, *(cells[column][number] for column in shown))
        table.add_section()
        table.add_row("total", *(cells[column][-1] for column in shown), style="bold")
        yield table


def _column(count: Count, by: str, names: Sequence[str]) -> list[int | None]:
    """Return the totals of the rows ``names``, None where there is no rule, and of all rows."""
    totals = {row.name: row.ops.total if row.ruled else None for row in _rows(count, by)}
    return [*(totals[name] for name in names), count.total.total]


def _that_fit(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Yield the columns of each table: as many of ``widths`` as fit in ``room``, at least one."""
    columns: list[int] = []
    for column, column_width in enumerate(widths):
        if columns and sum(widths[known] for known in columns) + column_width > room:
            yield columns
            columns = []
        columns.append(column)
    yield columns


def _comparison(counts: Sequence[Count], width: int) -> Table:
    """Return the totals with one row per convention: of a batch and, if there are any, a token."""
    table = _table("convention")
    with_tokens = counts[0].tokens is not None
    for heading in ("per batch", *(["per token"] if with_tokens else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(f"÷ {counts[0].convention.id}", justify="right", no_wrap=True)
    exact = width >= 80
    first = Row("", 0, counts[0].total, True)
    for count in counts:
        cells = [count.total.total, *([] if count.per_token is None else [count.per_token])]
        texts = [_exact(cell) if exact else _rounded(cell) for cell in cells]
        ratio = _ratio(Row("", 0, count.total, True), first)
        table.add_row(count.convention.id, *texts, ratio)
    return table


def _exact(value: int | float) -> str:
    """Return a count that may be a fraction, as operations per token are in some models."""
    return integer(value) if isinstance(value, int) else f"{value:,.1f}"


def _totals(count: Count) -> list[str]:
    total = count.total
    if not total.forward:
        return []
    backward_ops = total.backward + total.update
    per_token = count.per_token
    tokens = "" if per_token is None else f"{_exact(per_token)} FLOP per token, "
    return [
        f"{count.convention.id}: {quantity(total.total, 'FLOP')} per batch, "
        f"{quantity(total.total / count.graph.batch, 'FLOP')} per sample, {tokens}"
        f"backward and update are {backward_ops / total.forward:.4f} × forward"
    ]


def _backward_notes(counts: Sequence[Count]) -> list[str]:
    """Return what to know of the backward pass: recomputation, and what is not counted."""
    recomputed = [
        f"{count.convention.id}: activation checkpointing recomputes "
        f"{quantity(count.total.recompute, 'FLOP')} per batch, which the total does not contain; "
        f"with it, the hardware executes "
        f"{quantity(count.total.total + count.total.recompute, 'FLOP')}"
        for count in counts
        if count.total.recompute
    ]
    notes = dict.fromkeys(note for count in counts for note in count.notes)
    warnings = [count.warning for count in counts if count.warning]
    return [*recomputed, *(f"note: {note}" for note in notes), *(f"warning: {w}" for w in warnings)]


def _uncounted(counts: Sequence[Count]) -> list[str]:
    """Return the operators without a rule, in one line for conventions that lack the same."""
    conventions: dict[str, list[str]] = {}
    for count in counts:
        if count.uncounted:
            conventions.setdefault(_uncounted_operators(count), []).append(count.convention.id)
    return [
        f"{', '.join(names)} {'does' if len(names) == 1 else 'do'} not count these operators, "
        f"{operators}"
        for operators, names in conventions.items()
    ]


def _uncounted_operators(count: Count) -> str:
    """Return how much work the operators have that a convention does not count, and their names.

    The share of an operator is that of the numbers which it computes.
    """
    executed = sum_in_order(item.executed_share for item in count.uncounted)
    if any(item.is_unknown for item in count.uncounted):
        work = "whose work is not known"
    elif executed == 0:
        work = "none of which is a convolution or a matrix product"
    else:
        work = f"which have {percent(executed, digits=2)} of the convolutions and matrix products"
    names = ", ".join(
        f"{item.op.removesuffix('.default')} ×{item.nodes}" + _bracketed(item.share)
        for item in count.uncounted
    )
    return f"{work} (in brackets: share of all numbers that the model computes): {names}"


def _bracketed(share: float) -> str:
    """Return a share in brackets; nothing if it is next to nothing."""
    return f" ({percent(share)})" if share >= 0.0005 else ""


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
        "tokens": count.tokens,
        "per_token": count.per_token,
        "recompute": total.recompute,
        "notes": [*count.notes, *([count.warning] if count.warning else [])],
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
