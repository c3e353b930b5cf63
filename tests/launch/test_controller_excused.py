"""Attempts of a search's worker that only gave up a candidate are not held against it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launch.test_controller import Stage, run_of, seen_through
from vflops.launch import controller
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobGivenUp, JobLost

GAVE_UP = ("candidate", "candidate-failed", "failed")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "_POLL_S", 0.001)
    monkeypatch.setattr(controller, "_LONGEST_PAUSE_S", 0.001)


def through(folder: RunFolder, *attempts: tuple[str, ...]) -> Stage:
    """A job of two attempts, each of which ends so."""
    stage, left = Stage(folder), list(attempts)

    def next_one() -> None:
        if stage.running and left:
            stage.attempt(1, *left.pop(0))
            stage.running.clear()

    seen_through(folder, stage, [next_one] * 1000, attempts=2)
    return stage


def test_a_worker_may_give_up_more_candidates_than_it_has_attempts(tmp_path: Path) -> None:
    folder, _ = run_of(tmp_path)
    stage = through(folder, *[GAVE_UP] * 4, ("candidate", "failed"), GAVE_UP, ("end",))
    assert [tries[1] for _, tries in stage.started] == [2, 2, 2, 2, 2, 1, 1]
    assert folder.history().events("job-given-up") == []
    assert len(folder.history().events("job-lost")) == 6  # it is written down all the same


def test_what_dies_for_another_reason_is_counted(tmp_path: Path) -> None:
    folder, _ = run_of(tmp_path)
    through(folder, GAVE_UP, ("candidate-failed", "candidate", "failed"), ())
    (given_up,) = folder.history().events("job-given-up")
    assert given_up.payload(JobGivenUp).attempts == 2
    reasons = [event.payload(JobLost).reason for event in folder.history().events("job-lost")]
    assert len(reasons) == 3 and "before it wrote anything" in reasons[-1]


def test_attempts_that_the_launcher_began_itself_are_told_apart_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = run_of(tmp_path)
    stage = Stage(folder)
    script = [
        lambda: stage.attempt(1, *GAVE_UP),
        lambda: stage.attempt(1),  # it dies before it writes anything
        stage.running.clear,
        *[lambda: None] * 40,
        lambda: stage.attempt(1, "end"),
    ]
    monkeypatch.setattr(controller, "_PATIENCE_S", 0.0)  # nobody ends it here
    seen_through(folder, stage, script, attempts=2)
    assert [tries[1] for _, tries in stage.started] == [2, 1]


def test_another_controller_counts_them_alike(tmp_path: Path) -> None:
    folder, _ = run_of(tmp_path)
    stage = Stage(folder)

    def die() -> None:
        raise RuntimeError("the controller dies")

    def ends(*kinds: str) -> None:
        stage.attempt(1, *kinds)
        stage.running.clear()

    # The first one writes down that the attempt was lost, the second one has no time to.
    script = [lambda: ends(*GAVE_UP), lambda: None, *[lambda: None] * 40, die]
    with pytest.raises(RuntimeError):
        seen_through(folder, stage, script, attempts=2)
    stage.attempt(1, *GAVE_UP)
    later = through(folder, ("candidate", "failed"), ("end",))
    assert [tries[1] for _, tries in later.started] == [2, 1]
