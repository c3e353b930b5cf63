"""A run that concludes: score, findings and report from one pass over its folder."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from tests.support.sample_parts import MEASUREMENTS
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.check.findings import Finding
from vflops.results.check.rule import Rule
from vflops.results.score import scoring
from vflops.results.score.score_file import Score
from vflops.run import pipeline
from vflops.run.observer import RunObserver
from vflops.run.pipeline import conclude


def test_the_score_is_built_once_and_every_rule_runs_once(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, judged = scoring._scored, Rule.evaluate
    builds: list[Contents] = []
    calls: Counter[str] = Counter()

    def counted_build(contents: Contents) -> Score:
        builds.append(contents)
        return build(contents)

    def counted_rule(rule: Rule, contents: Contents) -> Finding:
        calls[rule.id] += 1
        return judged(rule, contents)

    monkeypatch.setattr(scoring, "_scored", counted_build)
    monkeypatch.setattr(Rule, "evaluate", counted_rule)
    findings = conclude(run_folder, RunObserver())
    assert len(builds) == 1
    assert calls == {finding.rule: 1 for finding in findings.findings}
    assert run_folder.report_file.is_file()


@pytest.mark.parametrize(
    ("left_out", "steps"),
    [((), []), (("memory",), ["measuring the ceilings: 5 s at most"])],
)
def test_a_step_that_has_finished_has_no_heading_again(
    run_folder: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    left_out: tuple[str, ...],
    steps: list[str],
) -> None:
    """Ceilings that the machine lacks were recorded, and are no reason to measure again."""
    from vflops.machine.ceilings import measure

    items = [item for item in MEASUREMENTS if item.benchmark not in left_out]
    planned = [SimpleNamespace(key=item.key) for item in MEASUREMENTS]
    monkeypatch.setattr(measure, "planned_items", lambda settings: planned)
    monkeypatch.setattr(measure, "measure", lambda *_, **__: iter(()))
    monkeypatch.setattr(Contents, "measurements", items)
    said: list[str] = []
    with run_folder.start_attempt(job=0) as events:
        pipeline._measure(run_folder, events, RunObserver(step=said.append))
    assert said == steps
