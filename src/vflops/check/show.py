"""Findings as a console table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vflops.check.record import Findings

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {"pass": "green", "fail": "bold red", "not applicable": "dim", "cannot tell": "yellow"}


def as_table(findings: Findings) -> RenderableType:
    """One row a rule: verdict, what it asks, and the evidence."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title = f"rule set {findings.rule_set}/{findings.rule_set_version}"
    table = Table("verdict", "rule", "evidence", title=title, box=box.SIMPLE_HEAD)
    table.title_justify = "left"
    for finding in findings.findings:
        verdict = Text(finding.verdict, style=_STYLES[finding.verdict])
        table.add_row(verdict, Text(finding.title), Text(finding.evidence))
    return table
