"""A rank fails in any phase of a job of two ranks: the job ends soon, and says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rank_faults import Fault, attempt, is_right, prepared


@pytest.mark.parametrize(
    ("phase", "fault", "faulty"),
    [
        ("start-up", "exception", 0),
        ("compilation", "kill", 1),
        ("training", "memory", 0),
        ("training", "kill", 0),  # the other rank fails in its backward pass
        ("evaluation", "exception", 1),
        ("checkpointing", "kill", 0),
    ],
)
def test_the_others_end_within_seconds_and_the_cause_is_the_fault(
    tmp_path: Path, phase: str, fault: Fault, faulty: int
) -> None:
    ended = attempt(tmp_path, prepared(tmp_path, phase), phase, fault, faulty)
    assert is_right(ended, fault, faulty), ended
