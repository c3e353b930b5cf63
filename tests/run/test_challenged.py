"""Runs that answer a challenge: which settings they have, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.challenged_runs import CHALLENGE
from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.record.formats.challenge import ChallengedRun
from vflops.run.challenged import challenged
from vflops.workloads.contract.run_settings import load, profile

NOW_S = CHALLENGE.issued_s + 60


def settings(*assignments: str, name: str = "image-classification") -> Settings:
    return load(profile("tiny", [name]), None, assignments)


def test_the_seed_of_the_command_selects_a_run_of_the_challenge() -> None:
    first, answered = challenged(settings(), CHALLENGE, NOW_S)
    assert answered == ChallengedRun(issued=CHALLENGE, number=1)
    section = first.workloads["image-classification"]
    assert (first.seed, section["synthetic"]["seed"]) == (answered.seed, answered.data_seed)
    second, _ = challenged(settings("seed=2"), CHALLENGE, NOW_S)
    assert second.seed not in range(first.seed - 1000, first.seed + 1000)
    assert challenged(settings(), CHALLENGE, NOW_S) == (first, answered)


@pytest.mark.parametrize(
    ("given", "now_s", "message"),
    [
        (settings, CHALLENGE.expires_s + 1, "the challenge expired at 2026-01-30T23:00:00"),
        (
            settings,
            CHALLENGE.issued_s - 61,
            "issued at 2025-12-31T23:00:00.*, but it is 2025-12-31T22:58:59",
        ),
        (lambda: settings("seed=1000"), NOW_S, "seed 1000 is not the number of a run"),
        (
            lambda: settings("synthetic.seed=2"),
            NOW_S,
            "image-classification.synthetic.seed = 2 is set",
        ),
        (
            lambda: settings("search.ledger=ledger.json", name="automl"),
            NOW_S,
            "automl is a replay, which has the seeds of its ledger",
        ),
    ],
)
def test_what_cannot_answer_a_challenge_is_refused(
    given: Callable[[], Settings], now_s: float, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        challenged(given(), CHALLENGE, now_s)
    assert refused.value.hint
