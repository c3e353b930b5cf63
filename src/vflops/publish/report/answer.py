"""The first screen of a report: whether the result counts, its figures, its limit, what is next."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vflops.publish.report.results import Order, Result, results
from vflops.publish.report.small_roofline import draw_small_roofline
from vflops.publish.report.training_blocks import RooflineModel
from vflops.record.folder import RunRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.advice import advice
from vflops.results.check.background_load import unjudged_load
from vflops.results.check.checking import check
from vflops.results.check.findings import Finding, Findings
from vflops.results.check.rehearsal_rule import RULE as REHEARSAL_RULE
from vflops.results.next_action import NextAction, next_action
from vflops.results.roofline.analysis import Ceilings
from vflops.results.score import search_text
from vflops.results.score.score_file import Score
from vflops.results.score.scoring import score
from vflops.results.score.unscored import REHEARSAL, memory_text

_MAX_REASONS, _MAX_REASON_LENGTH = 2, 220
"""How many failed rules the first screen explains, and with how many characters each."""
_MAX_ROWS = 4
"""How many results the first screen shows; the others are folded."""
_JOB = re.compile(r"jobs/([1-9]\d*)(/|$)")


@dataclass(frozen=True)
class Reason:
    """Why a result does not count: what went wrong, and what to do about it."""

    text: str
    advice: str = ""


@dataclass(frozen=True)
class Badge:
    """Whether a result counts."""

    kind: Literal["valid", "missed", "not-valid", "open", "unfinished"]
    label: str
    reasons: tuple[Reason, ...]
    more: int = 0
    """The number of rules that are not met besides those in ``reasons``."""


@dataclass(frozen=True)
class Answer:
    """Everything on the first screen."""

    badge: Badge
    rows: list[Result]
    more_rows: list[Result]
    limits: list[tuple[str, str]]
    """Marks in the roofline with the sentences on what limits the results."""
    roofline: str | None
    next: NextAction


def answer(contents: Contents, machine: Ceilings, models: Sequence[RooflineModel]) -> Answer:
    """Return the first screen of the report of a run."""
    scored, findings = contents.once(score), contents.once(check)
    by_workload = {model.bound.model: model for model in models}
    rows = results(scored, by_workload, _failed_jobs(findings))
    numbered = [(str(number), row) for number, row in enumerate(rows[:_MAX_ROWS], start=1)]
    points = [
        (number if len(rows) > 1 else "", model.bound.precision, model.achieved)
        for number, row in numbered
        if (model := by_workload.get(row.workload)) and model.achieved
    ]
    return Answer(
        badge=_badge(contents, scored, findings, rows),
        rows=rows[:_MAX_ROWS],
        more_rows=rows[_MAX_ROWS:],
        limits=[(number, row.limit) for number, row in numbered if row.limit],
        roofline=draw_small_roofline(machine, points),
        next=next_action(
            contents.folder,
            scored,
            findings,
            run=f"runs/{contents.folder.record.id}",
            in_progress=contents.in_progress,
        ),
    )


def _failed_jobs(findings: Findings) -> set[int]:
    """Return the jobs in which a rule is not met."""
    matches = (_JOB.match(finding.where or "") for finding in findings.failures)
    return {int(match[1]) for match in matches if match}


def _badge(contents: Contents, scored: Score, findings: Findings, rows: Sequence[Result]) -> Badge:
    run = contents.folder.record
    if contents.in_progress:
        return Badge("unfinished", "In progress", (Reason("these are the results so far"),))
    if not scored.complete:
        reason = Reason(str(scored.incomplete_reason), advice("complete", run))
        return Badge("unfinished", "Not finished", (reason,))
    if scored.rehearsal:
        memory = memory_text(contents)
        others = [finding for finding in findings.failures if finding.rule != REHEARSAL_RULE]
        own = [finding.evidence for finding in findings.failures if finding not in others]
        texts = [REHEARSAL, *own, *([f"memory: {memory}"] if memory else [])]
        return Badge("not-valid", "Rehearsal", tuple(map(Reason, texts)), len(others))
    if findings.failures:
        failures = sorted(findings.failures, key=lambda finding: finding.verdict != "fail")
        reasons = tuple(_reason(finding, run) for finding in failures[:_MAX_REASONS])
        more = len(findings.failures) - len(reasons)
        return Badge("not-valid", "Not valid", reasons, more)
    rules = Reason(f"all {findings.applying} rules of {findings.rule_set} that apply are met")
    comparable = [row for row in rows if row.order < Order.OPEN]
    invalid = [search for search in scored.searches if not search.aiperf.valid]
    if invalid:
        texts = [search_text.aiperf_reason(search) for search in invalid]
        return Badge("not-valid", "Not valid by AIPerf's rules", (*map(Reason, texts), rules))
    if rows and not comparable:
        why = Reason(f"not comparable with other runs: {rows[0].state}")
        return Badge("open", "Open", (rules, why))
    notes: list[Reason] = []
    if load := unjudged_load(contents):
        notes.insert(0, Reason(load, advice("quiet", run)))
    if len(comparable) < len(rows):
        names = " and ".join(row.name for row in rows[len(comparable) :])
        notes.append(Reason(f"not comparable with other runs: {names}"))
    missed = ", ".join(row.name for row in comparable if row.order == Order.MISSED)
    if missed:
        return Badge("missed", "Target missed", (Reason(f"by {missed}"), rules, *notes))
    return Badge("valid", "Valid", (rules, *notes))


def _reason(finding: Finding, run: RunRecord) -> Reason:
    text = finding.evidence
    if len(text) > _MAX_REASON_LENGTH:
        text = f"{text[: _MAX_REASON_LENGTH - 1].rstrip()}…"
    if finding.verdict == "cannot tell":
        text = f"it cannot be told whether {finding.title}: {text}"
    return Reason(text, advice(finding.rule, run))
