"""The system description for the console: one section per layer, absent facts last."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vflops.machine.system.fact_text import format_fact
from vflops.record.formats.system import Fact, Layer, SystemRecord

MIN_WIDTH_FOR_SOURCES = 110
SOURCE_WIDTH = 44
_NUMBERED_NAME = re.compile(r"(|.*?[^0-9])(0|[1-9][0-9]*)(:[0-9]+|)")
_NUMBERED_DEVICE = re.compile(r"(accelerator|interface|rdma) (\S+) (.+)")


@dataclass(frozen=True)
class Section:
    """The section of one layer; sources are shown if the console is wide enough."""

    layer: Layer
    label_width: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.max_width >= MIN_WIDTH_FOR_SOURCES
        known_table = Table.grid(padding=(0, 2))
        known_table.add_column(width=self.label_width)
        known_table.add_column(overflow="fold")
        if wide:
            known_table.columns[1].width = options.max_width - self.label_width - SOURCE_WIDTH - 4
            known_table.add_column(width=SOURCE_WIDTH, overflow="fold", style="dim")
        for label, value, source in _known_rows(self.layer.facts):
            name = Padding(Text(label), (0, 0, 0, 2))  # so that wrapped labels are indented too
            known_table.add_row(name, Text(value), *([Text(source)] if wide else []))
        absent_table = Table.grid(padding=(0, 1))
        absent_table.add_column()
        absent_table.add_column(overflow="fold")
        for names, reason in _absent_rows(self.layer.facts):
            absent_table.add_row("  —", Text(f"{', '.join(names)}: {reason}", style="dim"))
        yield Text(self.layer.name, style="bold")
        yield from (grid for grid in (known_table, absent_table) if grid.row_count)
        yield ""


def tables(record: SystemRecord) -> list[Section]:
    """Return one section for each of the nine layers."""
    labels = [label for layer in record.layers for label, _, _ in _known_rows(layer.facts)]
    longest = max(map(len, labels), default=0)
    return [Section(layer, label_width=min(longest + 2, 34)) for layer in record.layers]


def _known_rows(facts: Iterable[Fact]) -> list[tuple[str, str, str]]:
    """Return the label, value and source of each fact that has a value."""
    known = [fact for fact in facts if fact.value is not None]
    return [
        (label, format_fact(group[0]), group[0].source)
        for label, group in _grouped(known, key=format_fact)
    ]


def _absent_rows(facts: Iterable[Fact]) -> list[tuple[list[str], str]]:
    """Return the labels of the facts without a value, grouped by reason."""
    unknown = [fact for fact in facts if fact.value is None]
    reasons: dict[str, list[str]] = {}
    for label, group in _grouped(unknown, key=lambda fact: fact.reason or ""):
        reasons.setdefault(group[0].reason or "", []).append(label)
    return [(labels, reason) for reason, labels in reasons.items()]


def _grouped(facts: Iterable[Fact], key: Callable[[Fact], str]) -> list[tuple[str, list[Fact]]]:
    """Group equal facts of several devices under one label: ``accelerator 0–7 model``."""
    groups: dict[tuple[str, str, str], tuple[list[str], list[Fact]]] = {}
    for fact in facts:
        match = _NUMBERED_DEVICE.fullmatch(fact.name)
        kind, member, what = match.groups() if match else ("", "", fact.name)
        members, group = groups.setdefault((kind, what, key(fact)), ([], []))
        members.append(member)
        group.append(fact)
    return [
        (f"{kind} {_span(members)} {what}" if kind else what, group)
        for (kind, what, _), (members, group) in groups.items()
    ]


def _span(members: list[str]) -> str:
    """Return ``0–3, 7`` or ``mlx5_0–7:1``: devices with consecutive numbers as one range."""
    ranges: list[tuple[str, list[int], str]] = []
    for prefix, number, suffix in sorted(map(_numbered, members)):
        if ranges and ranges[-1][::2] == (prefix, suffix) and ranges[-1][1][-1] == number - 1:
            ranges[-1][1].append(number)
        else:
            ranges.append((prefix, [number], suffix))
    return ", ".join(f"{prefix}{_ends(numbers)}{suffix}" for prefix, numbers, suffix in ranges)


def _numbered(member: str) -> tuple[str, int, str]:
    """Return ``("mlx5_", 0, ":1")`` for ``mlx5_0:1``; the number is -1 if there is none."""
    match = _NUMBERED_NAME.fullmatch(member)
    return (match[1], int(match[2]), match[3]) if match else (member, -1, "")


def _ends(numbers: list[int]) -> str:
    if numbers == [-1]:
        return ""
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}"
