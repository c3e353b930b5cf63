"""Attempts of a search's worker that only gave up a candidate do not count as losses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launch.test_controller import FakeLauncher, run_controller, run_of
from vflops.errors import RestartNeeded
from vflops.launch import controller
from vflops.launch.rank_failures import RankFailure
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import JobGivenUp, JobLost

GAVE_UP = ("candidate", "failed", "restart")
"""The events of an attempt, and that one of its ranks left word that all of them restart."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "_POLL_S", 0.001)
    monkeypatch.setattr(controller, "_LONGEST_PAUSE_S", 0.001)


def attempt(launcher: FakeLauncher, *kinds: str) -> None:
    """Write the log of an attempt at the first job, and why its ranks restart."""
    number = launcher.folder.next_attempt(1)
    launcher.attempt(1, *(kind for kind in kinds if kind != "restart"))
    if "restart" in kinds:
        failure = RankFailure(1, "error", "r1 cannot be trained", exit_code=RestartNeeded.exit_code)
        failure.write(launcher.folder.attempt_folder(1, number))


def run_attempts(folder: RunFolder, *attempts: tuple[str, ...]) -> FakeLauncher:
    """Run a job with two attempts allowed; each attempt writes these events and dies."""
    launcher, left = FakeLauncher(folder), list(attempts)

    def next_one() -> None:
        if launcher.running and left:
            attempt(launcher, *left.pop(0))
            launcher.running.clear()

    run_controller(folder, launcher, [next_one] * 1000, attempts=2)
    return launcher


def test_a_worker_may_give_up_more_candidates_than_it_has_attempts(tmp_path: Path) -> None:
    folder, _ = run_of(tmp_path)
    launcher = run_attempts(folder, *[GAVE_UP] * 4, ("candidate", "failed"), GAVE_UP, ("end",))
    assert [tries[1] for _, tries in launcher.started] == [2, 2, 2, 2, 2, 1, 1]
    assert folder.history().events("job-given-up") == []
    assert len(folder.history().events("job-lost")) == 6  # recorded nevertheless


def test_other_deaths_are_counted(tmp_path: Path) -> None:
    folder, _ = run_of(tmp_path)
    run_attempts(folder, GAVE_UP, ("candidate-failed", "failed"), ())
    (given_up,) = folder.history().events("job-given-up")
    assert given_up.payload(JobGivenUp).attempts == 2
    reasons = [event.payload(JobLost).reason for event in folder.history().events("job-lost")]
    assert len(reasons) == 3 and "before it wrote anything" in reasons[-1]


def test_attempts_that_the_launcher_started_are_distinguished_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = run_of(tmp_path)
    launcher = FakeLauncher(folder)
    script = [
        lambda: attempt(launcher, *GAVE_UP),
        lambda: launcher.attempt(1),  # it dies before it writes anything
        launcher.running.clear,
        *[lambda: None] * 40,
        lambda: launcher.attempt(1, "end"),
    ]
    monkeypatch.setattr(controller, "_PATIENCE_S", 0.0)  # nothing ends it here
    run_controller(folder, launcher, script, attempts=2)
    assert [tries[1] for _, tries in launcher.started] == [2, 1]


def test_another_controller_counts_the_same(tmp_path: Path) -> None:
    folder, _ = run_of(tmp_path)
    launcher = FakeLauncher(folder)

    def die() -> None:
        raise RuntimeError("the controller dies")

    def ends(*kinds: str) -> None:
        attempt(launcher, *kinds)
        launcher.running.clear()

    # The first controller records the loss, the second one has no time to.
    script = [lambda: ends(*GAVE_UP), lambda: None, *[lambda: None] * 40, die]
    with pytest.raises(RuntimeError):
        run_controller(folder, launcher, script, attempts=2)
    attempt(launcher, *GAVE_UP)
    later = run_attempts(folder, ("candidate", "failed"), ("end",))
    assert [tries[1] for _, tries in later.started] == [2, 1]
