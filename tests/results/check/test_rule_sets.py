"""The rule sets: which one a run is for, what the document says of them, how they are named."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.paths import DOCS
from vflops.errors import UsageError
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.check.rule_sets import RULE_SETS, rule_set, rule_set_of
from vflops.workloads.contract.run_settings import profile

DOCUMENT = DOCS / "reference" / "checks.md"
SUITE = ("image-classification", "extreme-weather", "automl", "language-model")


@pytest.mark.parametrize(
    ("name", "workloads", "changes", "rules"),
    [
        ("tiny", SUITE, {}, "practice"),
        ("laptop", SUITE, {"models": 2}, "practice"),
        ("gpu", ("automl",), {}, "practice"),
        ("reference", ("image-classification",), {}, "hpcai500-v2"),
        ("reference", ("extreme-weather",), {}, "hpcai500-v2"),
        ("reference", ("extreme-weather",), {"models": 2}, "hpcai500-v3"),
        ("reference", ("automl",), {}, "aiperf"),
        ("reference", SUITE, {}, "hpcai500-v2"),
        ("reference", ("language-model",), {}, "practice"),
        ("reference", ("command",), {}, "practice"),
        ("reference", (), {}, "practice"),
    ],
)
def test_a_run_is_judged_by_the_rules_that_it_is_for(
    name: str, workloads: tuple[str, ...], changes: dict[str, Any], rules: str
) -> None:
    settings = profile(name, workloads)
    bagging = settings.bagging.model_copy(update=changes)
    assert rule_set_of(settings.model_copy(update={"bagging": bagging})).name == rules


def test_a_run_may_be_judged_by_another_set(run_folder: RunFolder) -> None:
    findings = check(Contents(run_folder), "aiperf")
    assert (findings.rule_set, findings.rule_set_version) == ("aiperf", 11)
    assert "workload" in [finding.rule for finding in findings.failures]  # nothing was searched
    assert {finding.section for finding in findings.findings if finding.rule == "error"} == {
        "IV.E, table IV"
    }


def test_a_set_or_a_rule_that_does_not_exist_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown rule set 'hpcai500'") as unknown:
        rule_set("hpcai500")
    assert unknown.value.hint == "did you mean hpcai500-v3 or hpcai500-v2?"
    with pytest.raises(UsageError, match="unknown rule 'chains' in practice"):
        rule_set("practice").rule("chains")


def test_every_rule_says_what_it_reads() -> None:
    for rules in RULE_SETS.values():
        assert [rule.id for rule in rules.rules if not rule.reads] == []


def test_the_document_has_every_rule_of_every_set_as_it_is() -> None:
    text = DOCUMENT.read_text()
    practice = RULE_SETS["practice"].rules
    for name, rules in RULE_SETS.items():
        section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
        rows = re.findall(
            r"^\| `([a-z-]+)` \| ([^|]+) \|([^|]*)\| ([^|]+) \| [^|]+ \|$", section, re.M
        )
        told = [
            (id, title, cited.strip(), tuple(re.findall("`([^`]+)`", reads)))
            for id, title, cited, reads in rows
        ]
        own = rules.rules if name == "practice" else rules.rules[len(practice) :]
        assert told == [(rule.id, rule.title, rule.section, rule.reads) for rule in own]


def test_a_counting_convention_is_not_a_rule_set() -> None:
    with pytest.raises(UsageError, match="'executed' is a counting convention") as error:
        rule_set("executed")
    assert "practice" in str(error.value.hint)
    assert "vflops count MODEL --rules executed" in str(error.value.hint)
