"""Jobs whose curves agree in all digits are copies, whatever their hashes are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.forged_runs import Forger
from tests.support.forgeries import Break, GoodRun, good_runs, judged


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    return good_runs(tmp_path_factory.mktemp("good"))


def copied(kind: str, *fields: str, points: int = 60) -> Break:
    """The values of job 1 in the log of job 2, at its first points."""

    def change(run: Forger) -> None:
        pairs = zip(run.lines(kind, 1), run.lines(kind, 2), strict=True)
        for source, copy in list(pairs)[:points]:
            copy["data"].update({field: source["data"][field] for field in fields})

    return change


@pytest.mark.parametrize(("points", "fails"), [(20, False), (40, True)])
def test_equal_losses_of_two_models_are_a_copy(
    good: GoodRun, tmp_path: Path, points: int, fails: bool
) -> None:
    findings = judged(
        good("ensembles"), tmp_path, "practice", copied("progress", "loss", points=points)
    )
    assert [finding.rule for finding in findings.failures] == ["seeds"] * fails
    words = "jobs 1 and 2 have the same losses in all digits: one training twice"
    assert all(finding.text.endswith(words) for finding in findings.failures)


def test_twins_have_the_same_losses(good: GoodRun, tmp_path: Path) -> None:
    def twins(run: Forger) -> None:
        run.twins()
        copied("progress", "loss")(run)
        copied("finished", "weights_sha256")(run)

    findings = judged(good("ensembles"), tmp_path, "practice", twins)
    assert "seeds" not in {finding.rule for finding in findings.failures}
