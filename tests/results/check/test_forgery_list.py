"""Every forgery of the list is caught by the rule that is named, by nothing else, or by no rule."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.support import forgery_list
from tests.support.forged_runs import Forger
from tests.support.forged_times import moved_by
from tests.support.forgeries import Break, GoodRun, good_runs
from tests.support.forgery_list import (
    BY_RULES,
    UNCAUGHT,
    RuleForgery,
    UncaughtForgery,
    on_busy_machine,
    unchanged,
)
from tests.support.golden_runs import GOLDEN, extracted
from tests.support.paths import DOCS
from vflops.publish.ranking.duplicates import find_duplicates
from vflops.publish.ranking.entry import Entry
from vflops.publish.ranking.measured_sketch import event_sketch, telemetry_sketch
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.evidence.manifest import write_manifest

Failing = Callable[[str, str, Break, Break], list[str]]
PAGE = DOCS / "explanation" / "forgeries.md"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    return good_runs(tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="module")
def failing(good: GoodRun, tmp_path_factory: pytest.TempPathFactory) -> Failing:
    """The rules that do not pass on a forged run, whose manifest is new as well."""

    @cache
    def find(base: str, rules: str, given: Break, harm: Break) -> list[str]:
        copy = tmp_path_factory.mktemp("forged") / good(base).name
        folder = forged(good(base), copy, given, harm)
        findings = check(Contents(folder), rules)
        shutil.rmtree(copy)
        return [finding.rule for finding in findings.failures]

    return find


def forged(source: Path, copy: Path, *harms: Break) -> RunFolder:
    """A copy of a run that was changed and sealed again."""
    shutil.copytree(source, copy)
    forger = Forger(copy)
    for harm in harms:
        harm(forger)
    folder = forger.sealed()
    write_manifest(folder)
    return folder


@pytest.mark.parametrize("forgery", BY_RULES, ids=lambda forgery: forgery.name)
def test_a_forgery_breaks_one_rule_and_the_honest_run_none(
    failing: Failing, forgery: RuleForgery
) -> None:
    honest = forgery.honest or forgery.base
    given = forgery.given
    assert failing(honest, forgery.rules, given, unchanged) == []
    assert failing(forgery.base, forgery.rules, given, forgery.harm) == [forgery.rule]


@pytest.mark.parametrize("forgery", UNCAUGHT, ids=lambda forgery: forgery.name)
def test_no_rule_catches_what_the_page_calls_uncaught(
    failing: Failing, forgery: UncaughtForgery
) -> None:
    assert failing(forgery.base, "practice", forgery.given, forgery.harm) == []


def test_the_result_of_a_rival_under_another_name_is_disputed(tmp_path: Path) -> None:
    """The copy has another id, is dated a day earlier, and is signed by another submitter."""

    def renamed(run: Forger) -> None:
        path = run.folder.path / "run.json"
        path.write_text(path.read_text().replace(run.folder.record.id, "another-run"))
        run.folder = RunFolder.open(run.folder.path)

    victim = extracted(GOLDEN[0], tmp_path)
    stolen = forged(victim, tmp_path / "copy", renamed, moved_by(-1))
    found = find_duplicates([_entry(RunFolder.open(victim), "victim"), _entry(stolen, "thief")])
    (dispute,) = found.disputes
    assert {entry.signer for entry in dispute.entries} == {"victim", "thief"}
    assert len(found.reasons) == 2


def _entry(folder: RunFolder, signer: str) -> Entry:
    contents = Contents(folder)
    return Entry(
        place=f"{signer}/run",
        source=signer,
        run=folder.record.id,
        signer=signer,
        digest=folder.anchor,
        course=folder.anchor,
        durations=event_sketch(contents.history),
        readings=telemetry_sketch(contents),
    )


def _table(heading: str) -> dict[str, str]:
    """The rows below a heading of the page: the first column, and the second one."""
    section = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {cells[0].removeprefix("| "): cells[1] for cells in rows[1:]}


def test_the_page_lists_every_forgery_with_what_catches_it() -> None:
    by_rules = {name: re.findall("`(.+?)`", cell) for name, cell in _table("By a rule").items()}
    assert by_rules == {forgery.name: [forgery.rule] for forgery in BY_RULES}
    assert _table("By an audit") == {
        forgery.name: forgery.verdict or "refused" for forgery in forgery_list.BY_AUDIT
    }
    assert tuple(_table("By a ranking")) == forgery_list.BY_RANKINGS
    assert list(_table("Not at all")) == [forgery.name for forgery in UNCAUGHT]


def test_a_machine_called_quiet_was_not_quiet(failing: Failing) -> None:
    assert failing("ResNet-50", "practice", on_busy_machine, unchanged) == ["quiet"]
