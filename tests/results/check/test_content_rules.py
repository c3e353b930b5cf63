"""What a job read must be the data that it records, and validation must not be trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.forged_runs import CONTENTS, VALIDATION, Forger
from tests.support.forgeries import Break, GoodRun, changed, good_runs, judged, together
from vflops.results.check.findings import Finding


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    return good_runs(tmp_path_factory.mktemp("good"))


def read(split: str, **facts: Any) -> Break:
    """Other facts of a split that the first job read."""

    def change(run: Forger) -> None:
        run.lines("data-read", 1)[0]["data"]["splits"][split].update(facts)

    return change


def records(**facts: Any) -> Break:
    """Other facts of the data in the records of all jobs."""
    return lambda run: run.records(lambda data: data["data"].update(facts))


def without_reads(run: Forger) -> None:
    run.drop(lambda line: line["kind"] != "data-read")


def finding(good: Path, place: Path, rule: str, harm: Break) -> tuple[list[str], Finding]:
    """The rules that fail, and what the given rule found."""
    found = judged(good, place, "practice", harm)
    (verdict,) = (finding for finding in found.findings if finding.rule == rule)
    return [failure.rule for failure in found.failures], verdict


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (read("train", sha256="9" * 64), "the content hash of train is not that of the data"),
        (read("train", samples=7, compared=7), "7 of 7 samples of train were compared"),
        (read("train", compared=10**9), "1,000,000,000 of 1,281,167 samples of train"),
        (read("validation", compared=VALIDATION - 1), "1 sample for validation"),
        (records(contents=CONTENTS | {"train": "9" * 64}), "the content hash of train is not"),
        (without_reads, "it ended without a record of the samples that it read"),
        (
            lambda run: run.lines("data-read", 1)[0]["data"]["splits"].pop("validation"),
            "no sample for validation was compared",
        ),
    ],
)
def test_other_samples_than_recorded_fail(
    good: GoodRun, tmp_path: Path, harm: Break, words: str
) -> None:
    failed, found = finding(good("one model"), tmp_path, "contents", harm)
    assert failed == ["contents"]
    assert words in found.text


def test_an_honest_run_passes_both_rules(good: GoodRun, tmp_path: Path) -> None:
    failed, found = finding(good("one model"), tmp_path, "contents", lambda run: None)
    assert not failed
    assert found.evidence == "5,324,668 samples compared by 4 jobs, none differed"


def test_leaks_among_the_digests_fail(good: GoodRun, tmp_path: Path) -> None:
    failed, found = finding(
        good("one model"), tmp_path, "leaks", changed("data-read", 1, leaked=501)
    )
    assert failed == ["leaks"]
    assert "501 samples for validation or testing are also trained on" in found.text


def test_the_digests_decide_for_data_that_was_not_compared_when_it_was_packed(
    good: GoodRun, tmp_path: Path
) -> None:
    failed, found = finding(good("one model"), tmp_path, "leaks", records(duplicates=None))
    assert "leaks" not in failed
    assert found.verdict == "pass"


@pytest.mark.parametrize(
    ("contents", "verdict", "words"),
    [
        (None, "not applicable", "the run is of an older version"),
        ({}, "cannot tell", "vflops data verify adds them"),
    ],
)
def test_data_without_digests_is_not_judged(
    good: GoodRun, tmp_path: Path, contents: dict[str, str] | None, verdict: str, words: str
) -> None:
    harm = together(without_reads, records(contents=contents))
    _, found = finding(good("one model"), tmp_path, "contents", harm)
    assert found.verdict == verdict
    assert words in found.evidence


def test_a_job_that_has_not_ended_is_not_judged(good: GoodRun, tmp_path: Path) -> None:
    def unfinished(run: Forger) -> None:
        run.drop(lambda line: line["kind"] not in ("data-read", "end"))

    _, found = finding(good("one model"), tmp_path, "contents", unfinished)
    assert (found.verdict, found.evidence) == ("not applicable", "no job has finished")
