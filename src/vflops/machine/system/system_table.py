"""The system for the console: one section per layer, known facts first, then absent ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from vflops.machine.system.fact_text import format_fact
from vflops.record.formats.system import Fact, Layer, SystemRecord

WIDE = 110
SOURCE_WIDTH = 44
_NUMBERED_DEVICE = re.compile(r"(accelerator|interface|rdma) (\S+) (.+)")


@dataclass(frozen=True)
class Section:
    """One layer; the sources are shown if the console is wide enough."""

    layer: Layer
    label_width: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.max_width >= WIDE
        read = Table.grid(padding=(0, 2))
        read.add_column(width=self.label_width)
        read.add_column(overflow="fold")
        if wide:
            read.columns[1].width = options.max_width - self.label_width - SOURCE_WIDTH - 4
            read.add_column(width=SOURCE_WIDTH, overflow="fold", style="dim")
        for label, value, source in _read(self.layer.facts):
            read.add_row(Text(f"  {label}"), Text(value), *([Text(source)] if wide else []))
        absent = Table.grid(padding=(0, 1))
        for names, reason in _absent(self.layer.facts):
            absent.add_row("  —", Text(f"{', '.join(names)}: {reason}", style="dim"))
        yield Text(self.layer.name, style="bold")
        yield from (grid for grid in (read, absent) if grid.row_count)
        yield ""


def tables(record: SystemRecord) -> list[Section]:
    """Return one section for each of the nine layers."""
    labels = [label for layer in record.layers for label, _, _ in _read(layer.facts)]
    longest = max(map(len, labels), default=0)
    return [Section(layer, label_width=min(longest + 2, 34)) for layer in record.layers]


def _read(facts: Iterable[Fact]) -> list[tuple[str, str, str]]:
    """Return label, value and source of the facts that have a value."""
    known = [fact for fact in facts if fact.value is not None]
    return [
        (label, format_fact(group[0]), group[0].source)
        for label, group in _folded(known, key=format_fact)
    ]


def _absent(facts: Iterable[Fact]) -> list[tuple[list[str], str]]:
    """Return the labels of the facts without a value, by reason."""
    unknown = [fact for fact in facts if fact.value is None]
    reasons: dict[str, list[str]] = {}
    for label, group in _folded(unknown, key=lambda fact: fact.reason or ""):
        reasons.setdefault(group[0].reason or "", []).append(label)
    return [(labels, reason) for reason, labels in reasons.items()]


def _folded(facts: Iterable[Fact], key: Callable[[Fact], str]) -> list[tuple[str, list[Fact]]]:
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
    numbers = [str(number) for number in range(len(members))]
    if len(members) > 1 and members == numbers:
        return f"{numbers[0]}–{numbers[-1]}"
    return ", ".join(members)
