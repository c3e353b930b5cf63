"""Attempts that cost none: a worker that gave up a candidate, time limits, requeues."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launch.test_controller import FakeLauncher, run_controller, run_of
from vflops.errors import RestartNeeded
from vflops.launch import controller
from vflops.launch.agent_report import AgentReport
from vflops.launch.launcher import How
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


def run_until_the_limit(folder: RunFolder, how: How, *began: int | None, end: bool) -> FakeLauncher:
    """Run a job with two attempts allowed, each of which trains from a sample until it is ended.

    None stands for an attempt that never begins to train, and a negative number for one of a worker
    that trains a candidate from the start, settles it and begins the next one.
    """
    launcher, left = FakeLauncher(folder), list(began)
    launcher.how = how

    def next_one() -> None:
        if not launcher.running:
            return
        with folder.log(1, folder.claim_attempt(1)) as log:
            first = left.pop(0) if left else None
            if first is not None:
                log.write("job")
            if first:
                log.write("resumed", samples=abs(first))
            if first is not None:
                phases: dict[str, float] = {}
                log.write("progress", epoch=1.0, samples=1000, phases=phases)
            if first is not None and first < 0:
                log.write("candidate-trained")
                log.write("job")
            if end and not left:
                log.write("end")
        launcher.running.clear()

    run_controller(folder, launcher, [next_one] * 1000, attempts=2)
    return launcher


def excused(folder: RunFolder) -> list[bool]:
    return [event.payload(JobLost).excused for event in folder.history().events("job-lost")]


def test_time_limits_cost_no_attempt_while_every_attempt_begins_later(tmp_path: Path) -> None:
    folder, _ = run_of(tmp_path)
    run_until_the_limit(folder, "limit", 0, 100, 200, 300, 400, end=True)
    assert excused(folder) == [True] * 4


def test_a_limit_too_short_for_a_checkpoint_does_not_repeat_the_same_steps_for_ever(
    tmp_path: Path,
) -> None:
    folder, _ = run_of(tmp_path)
    run_until_the_limit(folder, "limit", 0, 100, 100, 100, 100, 100, 100, end=True)
    assert excused(folder) == [True, True, False, False]
    (given_up,) = folder.history().events("job-given-up")
    assert given_up.payload(JobGivenUp).attempts == 2


def test_a_limit_too_short_to_begin_training_costs_attempts(tmp_path: Path) -> None:
    folder, _ = run_of(tmp_path)
    run_until_the_limit(folder, "limit", None, None, None, end=False)
    assert excused(folder) == [False, False]


def test_a_worker_advances_by_its_candidates(tmp_path: Path) -> None:
    folder, _ = run_of(tmp_path)
    run_until_the_limit(folder, "limit", -100, -50, -50, -20, 0, end=True)
    assert excused(folder) == [True] * 4


def test_requeues_cost_no_attempt(tmp_path: Path) -> None:
    folder, _ = run_of(tmp_path)
    run_until_the_limit(folder, "requeue", 0, 0, None, 0, 0, end=True)
    assert excused(folder) == [True] * 4


def test_a_job_that_someone_cancelled_is_given_up_at_once(tmp_path: Path) -> None:
    folder, _ = run_of(tmp_path)
    launcher = run_until_the_limit(folder, "cancelled", 0, end=False)
    assert len(launcher.started) == 1
    assert excused(folder) == [False]
    (given_up,) = folder.history().events("job-given-up")
    assert given_up.payload(JobGivenUp).reason == "it was cancelled; a test ended it"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("rank 1: bad label", "a test ended it; n1: job 1: rank 1: bad label"),
        ("bad label", "a test ended it; n1: job 1: bad label"),
        (
            "an earlier one: bad",
            "rank 1: bad label; a test ended it; n1: job 1: an earlier one: bad",
        ),
    ],
)
def test_a_cause_that_the_agent_reports_is_said_once(
    tmp_path: Path, message: str, reason: str
) -> None:
    folder, _ = run_of(tmp_path)
    launcher = FakeLauncher(folder)
    launcher.report = AgentReport(node="n1", job=1, outcome="failed", message=message)

    def fail() -> None:
        launcher.attempt(1, "checkpoint")
        RankFailure(1, "error", "bad label").write(folder.attempt_folder(1, 0))
        launcher.running.clear()

    run_controller(folder, launcher, [fail], attempts=1)
    (lost,) = folder.history().events("job-lost")
    assert lost.payload(JobLost).reason == reason
