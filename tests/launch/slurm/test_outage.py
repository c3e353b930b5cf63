"""Waiting for a scheduler that does not answer: how long, how often, and what is repeated."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from vflops.errors import RunFailed
from vflops.launch import attempt
from vflops.launch.scheduler import JobStatus, SchedulerUnavailable
from vflops.launch.slurm import commands, outage, slurm_nodes
from vflops.launch.slurm.outage import Outage
from vflops.launch.slurm.slurm_scheduler import SlurmScheduler

LOST = "scancel: error: Unable to contact slurm controller (connect failure)"
LATE = "scancel: error: Kill job error on job id 7: Socket timed out on send/recv operation"
HUNG = SchedulerUnavailable("scancel did not answer within 30 s", may_have_succeeded=True)


class Time:
    """A clock that only pauses move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.pauses_s: list[float] = []
        fake = SimpleNamespace(monotonic=lambda: self.now_s, sleep=self._sleep)
        monkeypatch.setattr(outage, "time", fake)

    def _sleep(self, seconds: float) -> None:
        self.pauses_s.append(seconds)
        self.now_s += seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def test_pauses_grow_to_a_limit_and_end_with_the_outage(
    time: Time, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = SchedulerUnavailable("no contact", may_have_succeeded=True)
    waiting = Outage("slurm", limit_s=200.0, hint="wait")
    with pytest.raises(RunFailed, match="slurm did not answer for 200 s: no contact"):
        for _ in range(100):
            waiting.wait(lost)
    grown = [2, 3, 4.5, 6.75, 10.125, 15.1875, 22.78125, 30, 30, 30, 30]
    assert time.pauses_s == pytest.approx([*grown, 200 - sum(grown)])
    assert "next try in 2 s, the last one in 200 s" in capsys.readouterr().err


class Scancel:
    """A command that fails with these messages, one after the other, and then succeeds.

    Instead of a message, there may be the error of a command that does not end.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *messages: str | SchedulerUnavailable
    ) -> None:
        self.messages, self.calls = list(messages), 0
        monkeypatch.setattr(commands, "run_command", self)

    def __call__(
        self, command: Sequence[str], timeout_s: float = 0.0
    ) -> subprocess.CompletedProcess[str]:
        self.calls += 1
        message = self.messages.pop(0) if self.messages else ""
        if isinstance(message, SchedulerUnavailable):
            raise message
        return subprocess.CompletedProcess(command, bool(message), "", message)


@pytest.mark.parametrize("message", [LOST, LATE, HUNG])
def test_a_cancellation_waits_for_a_controller_that_does_not_answer(
    message: str | SchedulerUnavailable, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    scancel = Scancel(monkeypatch, message, message)
    commands.scancel("7")
    assert (scancel.calls, time.pauses_s) == (3, [2.0, 3.0])
    Scancel(monkeypatch, *[message] * 100)
    with pytest.raises(RunFailed, match="did not answer for 120 s") as caught:
        commands.scancel("7")
    assert "vflops cancel" in str(caught.value.hint)


def test_a_signal_that_may_have_arrived_is_not_repeated_while_checkpoints_are_written(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second signal would kill the ranks at once."""
    Scancel(monkeypatch, LOST, LATE, LOST)
    commands.scancel("--signal=TERM", "7")
    assert time.pauses_s == [2.0, attempt._PATIENCE_S, 4.5]
    Scancel(monkeypatch, HUNG)
    commands.scancel("--signal=TERM", "7")
    assert time.pauses_s[3:] == [attempt._PATIENCE_S]


def test_other_failures_of_a_cancellation_are_not_waited_for(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    Scancel(monkeypatch, "scancel: error: Access/permission denied")
    with pytest.raises(RunFailed, match="permission denied"):
        commands.scancel("7")
    Scancel(monkeypatch, "scancel: error: Kill job error on job id 7: Invalid job id specified")
    commands.scancel("7")
    assert not time.pauses_s


def test_a_command_that_does_not_end_says_so_by_its_type_and_not_by_its_text() -> None:
    with pytest.raises(SchedulerUnavailable, match=r"sleep did not answer within 0\.1 s") as late:
        commands.run_command(["sleep", "9"], 0.1)
    assert late.value.may_have_succeeded
    assert commands.complaint(late.value.message) is None
    assert commands.listing(["echo", "a\nb"]) == ["a", "b"]
    assert commands.listing(["false"]) == []


def test_jobs_keep_their_status_while_squeue_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, running = SlurmScheduler(), JobStatus("running", ("n1",), None)
    monkeypatch.setattr(scheduler, "_query", lambda ids: {"7": running})
    scheduler.look(["7"])

    def late(ids: Sequence[str]) -> dict[str, JobStatus]:
        raise SchedulerUnavailable("squeue did not answer within 60 s", may_have_succeeded=True)

    monkeypatch.setattr(scheduler, "_query", late)
    seen = scheduler.look(["7", "8"])
    assert seen["7"] == running
    assert (seen["8"].state, seen["8"].reason) == ("waiting", "squeue did not answer within 60 s")


def test_the_nodes_that_slurm_does_not_reach_are_not_known_while_sinfo_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Scancel(monkeypatch, HUNG, HUNG)
    assert slurm_nodes.unreachable_nodes(["n1"]) == {}
    assert slurm_nodes.node_addresses(None) == []
