"""The rule ``challenge``: seeds and times of a run follow from its challenge."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.challenged_runs import CHALLENGE, ISSUED, answer
from tests.support.forged_runs import Forger
from tests.support.forgeries import GoodRun, good_runs, small_graphs
from tests.support.trained_runs import ZERO
from vflops.record.folder import RunFolder
from vflops.record.formats.challenge import ChallengedRun
from vflops.record.readout.contents import Contents
from vflops.results.check.challenge_rule import Demand
from vflops.results.check.checking import check, demand_challenge
from vflops.results.check.findings import Finding, Findings
from vflops.results.check.rule_sets import rule_set

RUN = ChallengedRun(issued=CHALLENGE, number=1)
KEEPER = Demand("keeper@example.org", "signed by keeper@example.org")
Break = Callable[[Forger], object]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    return good_runs(tmp_path_factory.mktemp("good"))


def answered(path: Path, place: Path, harm: Break, **facts: Any) -> Contents:
    """A copy of a good run that answers the challenge and is then harmed."""
    copy = place / path.name
    shutil.copytree(path, copy)
    forger = Forger(copy)
    answer(forger, facts.pop("run", RUN), **facts)
    harm(forger)
    return Contents(RunFolder.open(forger.sealed().path))


def found(contents: Contents) -> Finding:
    return rule_set("practice").rule("challenge").evaluate(contents)


def demanded(contents: Contents, demand: Demand = KEEPER) -> Finding:
    findings = Findings(
        run="a", rule_set="practice", rule_set_version=1, findings=(found(contents),)
    )
    (finding,) = demand_challenge(findings, contents, demand).findings
    return finding


def nothing(run: Forger) -> None:
    """Harm nothing."""


def in_run(change: Callable[[dict[str, Any]], object]) -> Break:
    """Change ``run.json``."""

    def forge(run: Forger) -> None:
        path = run.folder.path / "run.json"
        data = json.loads(path.read_text())
        change(data)
        path.write_text(json.dumps(data))
        run.folder = RunFolder.open(run.folder.path)

    return forge


def moved(hours: float) -> Break:
    """Move all events and the creation of the run in time."""

    def forge(run: Forger) -> None:
        for line in (line for log in run.logs.values() for line in log):
            line["utc"] = _later(line["utc"], hours)
        in_run(lambda data: data.update(created_utc=_later(data["created_utc"], hours)))(run)

    return forge


def _later(utc: str, hours: float) -> str:
    return (datetime.fromisoformat(utc) + timedelta(hours=hours)).isoformat()


@pytest.mark.parametrize("name", ["one model", "ensembles", "search"])
def test_an_honest_answer_passes_and_a_run_without_one_needs_none(
    good: GoodRun, tmp_path: Path, name: str
) -> None:
    plain = Contents(RunFolder.open(good(name)))
    assert found(plain).verdict == "not applicable"
    assert demanded(plain).evidence == "the run answers no challenge, but one is required"
    began = datetime.fromtimestamp(plain.history.logs[0].events[0].utc_s, UTC)
    times = {"issued_utc": (began - timedelta(hours=1)).isoformat(), "expires_utc": None}
    run = ChallengedRun(issued=CHALLENGE.model_copy(update=times), number=0)
    contents = answered(
        good(name), tmp_path, nothing, run=run, created_utc=began.isoformat(timespec="seconds")
    )
    with small_graphs():
        assert check(contents).failures == []
    assert found(contents).verdict == "pass"
    evidence = demanded(contents).evidence
    assert "issued by keeper@example.org to alice@example.org" in evidence
    assert "from issue to its end" in evidence


@pytest.mark.parametrize(
    ("harm", "evidence"),
    [
        (
            in_run(lambda data: data["settings"].update(seed=7)),
            f"seed is 7, but the challenge gives {RUN.seed}",
        ),
        (
            in_run(lambda data: data["challenge"].update(number=2)),
            f"seed is {RUN.seed}, but the challenge gives",
        ),
        (
            in_run(lambda data: data["challenge"]["issued"].update(submitter="bob@example.org")),
            f"seed is {RUN.seed}, but the challenge gives",
        ),
        (
            lambda run: run.settings(
                lambda data: data.update(data=None, synthetic={**data["synthetic"], "seed": 5})
            ),
            "synthetic.seed is 5, but the challenge gives",
        ),
        (
            lambda run: run.record(2, lambda data: data["bag"].update(seed=3)),
            "the sample of job 2 is drawn with the seed 3, but the challenge gives",
        ),
        (moved(-2), "the run was created at 2025-12-31T22:00:00+00:00, before the challenge"),
        (moved(24 * 40), "after the challenge expired at 2026-01-30T23:00:00+00:00"),
        (
            in_run(lambda data: data.update(created_utc=_later(ZERO.isoformat(), 1))),
            "the log begins at 2026-01-01T00:00:00.000+00:00, before the run was created",
        ),
        (
            in_run(lambda data: data.update(created_utc="once")),
            "created_utc is 'once', expected a time",
        ),
    ],
)
def test_seeds_and_times_that_do_not_follow_fail(
    good: GoodRun, tmp_path: Path, harm: Break, evidence: str
) -> None:
    contents = answered(good("ensembles"), tmp_path, harm)
    assert found(contents).verdict == "fail"
    assert evidence in found(contents).evidence


def test_a_run_that_took_longer_than_since_the_issue_fails(good: GoodRun, tmp_path: Path) -> None:
    def slower(run: Forger) -> None:
        own = [log for path, log in run.logs.items() if path.parts[-3] == "0"]
        own[-1][-1]["time_s"] += 1e6

    contents = answered(good("one model"), tmp_path, slower)
    assert found(contents).verdict == "fail"
    assert "but there were only" in found(contents).evidence


def test_the_time_of_receipt_bounds_the_run(good: GoodRun, tmp_path: Path) -> None:
    contents = answered(good("one model"), tmp_path, nothing)
    end_s = max(log.events[-1].utc_s for log in contents.history.logs)

    def received(time_s: float) -> Finding:
        return demanded(contents, Demand("keeper", "", time_s))

    assert received(end_s + 1).verdict == "pass"
    assert "from issue to its receipt" in received(end_s + 3600).evidence
    early = received(end_s - 3600)
    assert early.verdict == "fail"
    assert "after it was received at" in early.evidence
    late = received((ISSUED + timedelta(days=31)).timestamp())
    assert late.verdict == "fail"
    assert "after the challenge expired at" in late.evidence


def test_a_challenge_of_somebody_else_is_not_accepted(good: GoodRun, tmp_path: Path) -> None:
    contents = answered(good("one model"), tmp_path, nothing)
    finding = demanded(contents, Demand(None, "signed by a key, which FILE does not allow"))
    assert finding.verdict == "fail"
    assert "not accepted: signed by a key, which FILE does not allow" in finding.evidence
    assert found(contents).verdict == "pass"


def test_a_reproduction_repeats_the_seeds_and_is_not_an_answer(
    good: GoodRun, tmp_path: Path
) -> None:
    again = RUN.model_copy(update={"reproduces": "20260101T000000Z-suite-aaaaaa"})
    contents = answered(good("one model"), tmp_path, moved(24 * 365), run=again)
    assert found(contents).verdict == "not applicable"
    assert "repeats the seeds of 20260101T000000Z-suite-aaaaaa" in demanded(contents).evidence
    assert demanded(contents).verdict == "fail"


def test_a_replay_has_seeds_of_its_own(good: GoodRun, tmp_path: Path) -> None:
    def replayed(run: Forger) -> None:
        run.settings(lambda data: data["search"].update(ledger="ledger.json"))

    finding = found(answered(good("search"), tmp_path, replayed))
    assert finding.verdict == "fail"
    assert "automl is a replay, which has the seeds of its ledger" in finding.evidence


def test_a_power_log_may_be_imported_after_the_end(good: GoodRun, tmp_path: Path) -> None:
    contents = answered(good("one model"), tmp_path, nothing)
    with contents.folder.start_attempt(job=0) as log:  # now, months later
        log.write("power-imported", file="telemetry/imported-1.jsonl", sha256="0" * 64)
        log.write("end")
    assert found(Contents(contents.folder)).verdict == "pass"
