"""Challenges: which seeds follow from one, and which files are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.challenged_runs import CHALLENGE
from vflops.config.profiles import PROFILES
from vflops.config.settings import Settings
from vflops.errors import FolderError
from vflops.record.formats.challenge import MAX_RUNS, SEED_BITS, Challenge, ChallengedRun
from vflops.workloads.contract import run_settings
from vflops.workloads.contract.registry import suite

RUN = ChallengedRun(issued=CHALLENGE, number=1)


def issued(**changes: Any) -> ChallengedRun:
    return ChallengedRun(issued=CHALLENGE.model_copy(update=changes), number=1)


def test_the_seeds_of_a_challenge_never_change() -> None:
    """Other values would make every stored run that answers a challenge fail its check."""
    assert (RUN.seed, RUN.data_seed) == (3632700437088176, 2826318684238580)


def test_every_part_of_a_challenge_changes_all_seeds() -> None:
    runs = [
        RUN,
        RUN.model_copy(update={"number": 2}),
        issued(nonce="ab" * 31 + "ac"),
        issued(submitter="bob@example.org"),
        issued(issued_utc="2026-01-01T00:00:00+00:00"),
        issued(expires_utc=None),
    ]
    seeds = {seed for run in runs for seed in (run.seed, run.data_seed)}
    assert len(seeds) == 2 * len(runs)
    assert max(seeds) < 2**SEED_BITS
    assert issued(signature="another key").seed == RUN.seed


def test_all_workloads_of_a_run_are_seeded_except_for_data_of_the_user() -> None:
    settings = run_settings.profile("tiny", suite())
    own = {**settings.workloads["automl"], "data": "/images"}
    settings = settings.model_copy(update={"workloads": {**settings.workloads, "automl": own}})
    seeded = RUN.seeded(settings)
    assert seeded.seed == RUN.seed
    seeds = {name: data["synthetic"]["seed"] for name, data in seeded.workloads.items()}
    assert seeds == {
        "image-classification": RUN.data_seed,
        "extreme-weather": RUN.data_seed,
        "language-model": RUN.data_seed,
        "automl": 1,
    }
    assert RUN.seeded(seeded) == seeded
    assert RUN.seeded(PROFILES["tiny"]()) == Settings(
        **{**PROFILES["tiny"]().model_dump(), "seed": RUN.seed}
    )


@pytest.mark.parametrize(
    "change",
    [
        {"nonce": "AB" * 32},
        {"nonce": "ab" * 31},
        {"submitter": ""},
        {"submitter": "a\nb"},
        {"submitter": " a"},
        {"issued_utc": "yesterday"},
        {"issued_utc": "2026-01-01T00:00:00"},
        {"expires_utc": "2026-13-01T00:00:00+00:00"},
        {"signature": "a" * 70_000},
        {"issuer": "me"},
    ],
)
def test_what_is_not_a_challenge_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "challenge.json"
    CHALLENGE.write(path)
    assert Challenge.read(path) == CHALLENGE
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(FolderError, match="does not match its schema vflops"):
        Challenge.read(path)


@pytest.mark.parametrize("number", [-1, MAX_RUNS])
def test_a_challenge_has_a_limited_number_of_runs(number: int) -> None:
    with pytest.raises(ValidationError):
        ChallengedRun(issued=CHALLENGE, number=number)
