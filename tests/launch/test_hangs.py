"""Ranks that hang: the judge on synthetic heartbeats, and the agreement between nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vflops.launch import hang_watch
from vflops.launch.hang_judge import HangJudge, Observation, ProcessState, Silence
from vflops.launch.hang_watch import HangWatch, SilentRank, blamed, process_state
from vflops.launch.heartbeat import Beat, Heartbeat, HeartbeatBoard
from vflops.launch.node_group import NodeGroup
from vflops.launch.rank_failures import RankFailure, root_cause
from vflops.record.formats.job_events import PHASES
from vflops.train.phase_clock import Clock

FLOOR_S = 300.0
KNOWN = frozenset(PHASES)


def about(seconds: float) -> object:
    """Return what equals a time as exactly as observations are made."""
    return pytest.approx(seconds, rel=0.02)


class Job:
    """A job that is observed every second, and whose clock a test moves."""

    def __init__(self, ranks: int = 1) -> None:
        self.judge = HangJudge(FLOOR_S)
        self.now_s = 1000.0
        self.beats = dict.fromkeys(range(ranks), Beat(1, "training", KNOWN))
        self.states: dict[int, ProcessState] = dict.fromkeys(range(ranks), "active")
        self.observe()

    def beat(self, phase: str = "training", earlier: frozenset[str] = KNOWN, rank: int = 0) -> None:
        self.beats[rank] = Beat(self.beats[rank].number + 1, phase, earlier)

    def observe(self) -> dict[int, Silence]:
        seen = {rank: Observation(beat, self.states[rank]) for rank, beat in self.beats.items()}
        return self.judge.observe(self.now_s, seen)

    def steps(self, count: int, step_s: int) -> None:
        """Take steps of all ranks, and check that none is called a hang."""
        for _ in range(count):
            assert self.silence(step_s) is None
            for rank in self.beats:
                self.beat(rank=rank)

    def silence(self, seconds: int) -> float | None:
        """Let seconds pass without progress; return after how many the job was said to hang."""
        for second in range(1, seconds + 1):
            self.now_s += 1.0
            if self.observe():
                return second
        return None


def test_quick_steps_have_the_floor_as_limit() -> None:
    job = Job()
    job.steps(5, step_s=1)
    assert job.silence(1000) == about(FLOOR_S)


def test_slow_steps_have_a_longer_limit() -> None:
    job = Job()
    job.steps(5, step_s=60)
    assert job.silence(5000) == about(20 * 60)


def test_every_phase_has_its_own_rhythm_and_a_slow_one_helps_the_others() -> None:
    job = Job()
    job.steps(3, step_s=1)
    job.beat("evaluation")
    assert job.silence(280) is None
    job.beat()
    job.steps(3, step_s=1)
    assert job.silence(5000) == about(2 * 280)  # as another compilation may take as long
    job.beat("evaluation")
    assert job.silence(20 * 279) is None


def test_what_was_never_done_before_may_take_long() -> None:
    job = Job()
    job.beat("checkpointing", earlier=frozenset({"training"}))
    assert job.silence(10_000) == about(6 * FLOOR_S)


@pytest.mark.parametrize("earlier", [frozenset(), KNOWN])
def test_the_start_has_no_limit(earlier: frozenset[str]) -> None:
    job = Job()
    job.beat("start-up", earlier)
    assert job.silence(50_000) is None


@pytest.mark.parametrize("earlier", [frozenset(), KNOWN])
def test_a_compilation_may_take_two_hours_or_longer_after_slow_steps(
    earlier: frozenset[str],
) -> None:
    job = Job()
    job.beat("compilation", earlier)
    assert job.silence(10_000) == about(24 * FLOOR_S)
    job = Job()
    for step_s in (290, 5000):
        job.steps(1, step_s=step_s)
    job.beat("compilation", earlier)
    assert job.silence(20_000) == about(2 * 5000)


@pytest.mark.parametrize("phase", ["start-up", "compilation", "training"])
def test_a_stopped_process_hangs_after_seconds_whatever_the_others_do(phase: str) -> None:
    job = Job(ranks=2)
    job.beat(phase, rank=1)
    job.states[1] = "stopped"
    for _ in range(10):
        job.now_s += 1.0
        job.beat(rank=0)
        assert not job.observe()
    job.now_s += 1.0
    job.beat(rank=0)
    (found,) = job.observe().items()
    assert found[0] == 1 and found[1].stopped
    assert (found[1].silent_s, found[1].limit_s) == (11.0, 10.0)


def test_a_job_that_was_suspended_with_its_agent_is_left_alone() -> None:
    job = Job(ranks=2)
    job.states = {0: "stopped", 1: "stopped"}
    for _ in range(4):
        job.now_s += 3600.0
        assert not job.observe()
        job.states = {0: "active", 1: "active"}  # the ranks continue a moment after the agent
        job.steps(3, step_s=1)
        job.states = {0: "stopped", 1: "stopped"}


def test_a_short_stop_after_a_long_silence_is_no_hang() -> None:
    """As ranks may be seen at the end of a suspension, during their first compilation."""
    job = Job()
    job.beat("compilation", earlier=frozenset())
    for _ in range(7):  # less than the limit of a compilation
        assert job.silence(1000) is None
        job.states[0] = "stopped"
        assert job.silence(10) is None
        job.states[0] = "active"


def test_an_evaluation_that_beats_may_take_any_time() -> None:
    job = Job()
    for _ in range(20):
        job.beat("evaluation", earlier=frozenset({"training"}))
        assert job.silence(1000) is None
    assert job.silence(50_000) == about(20 * 1000 - 1000)  # since the last beat, and as learned


def test_a_rank_that_waits_for_one_that_works_does_not_hang() -> None:
    job = Job(ranks=2)
    for _ in range(3000):  # it computes alone
        job.now_s += 1.0
        job.beat(rank=1)
        assert not job.observe()
    assert job.silence(1000) == about(FLOOR_S)


def test_a_suspended_job_or_a_sleeping_laptop_does_not_hang() -> None:
    job = Job()
    for _ in range(100):
        job.now_s += 3600.0  # neither the ranks nor their agent ran
        assert not job.observe()
    job.now_s -= 1e6  # this clock never goes back, but if it did
    assert not job.observe()


def test_a_slow_file_system_has_a_longer_limit() -> None:
    job = Job()
    job.states[0] = "storage"
    assert job.silence(10_000) == about(6 * FLOOR_S)


def test_a_debugger_may_take_any_time() -> None:
    job = Job()
    job.states[0] = "traced"
    assert job.silence(10_000) is None
    job.states[0] = "active"
    assert job.silence(10_000) == about(FLOOR_S)


def test_jobs_with_any_regular_rhythm_are_never_said_to_hang() -> None:
    """Steps that get up to ten times slower, with evaluations and checkpoints in between."""
    job, earlier = Job(), frozenset({"start-up", "training"})
    for step_s in (1, 3, 30, 250, 40, 1):
        for phase in ("training", "evaluation", "checkpointing"):
            job.beat(phase, earlier)
            earlier |= {phase}
            assert job.silence(step_s) is None


def test_beats_reach_the_agent() -> None:
    board = HeartbeatBoard(range(4, 6))
    clock = Clock(Heartbeat(1, board.variables).beat)
    assert board.read(5) == Beat()
    clock.enter("training")
    with clock.phase("data"):
        clock.spent_s()  # no progress by itself
        assert board.read(5) == Beat(2, "data")
    assert board.read(5) == Beat(3, "training", frozenset({"data"}))  # no step was completed
    with clock.phase("evaluation"):
        clock.tick()
        assert board.read(5) == Beat(5, "evaluation", frozenset({"data"}))
    assert board.read(5) == Beat(6, "training", frozenset({"data", "evaluation"}))
    clock.rest()
    clock.tick()  # an evaluation after training has no limit
    assert board.read(5).phase == "start-up" and board.read(5).number == 8
    assert board.read(4) == Beat()
    Heartbeat(0, {}).beat("training")  # without an agent
    board.close()


@pytest.mark.parametrize(("path", "why"), [("missing", "No such file"), ("empty", "empty file")])
def test_a_rank_says_that_it_has_no_heartbeat(
    path: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").touch()
    Heartbeat(0, {"VFLOPS_HEARTBEAT": str(tmp_path / path)}).beat("training")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"a hang of this rank will not be noticed: cannot open its heartbeat {tmp_path}"
    )
    assert why in line
    Heartbeat(0, {})
    assert not capsys.readouterr().err


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def test_a_stopped_process_is_recognised(child: subprocess.Popen[bytes]) -> None:
    assert process_state(child.pid) == "active"
    os.kill(child.pid, signal.SIGSTOP)
    end_s = time.monotonic() + 20
    while process_state(child.pid) != "stopped" and time.monotonic() < end_s:
        time.sleep(0.01)
    assert process_state(child.pid) == "stopped"


class Nodes:
    """The agents of a job with one rank on each of two nodes, with a clock that a test moves."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.stopped = 0.0, 1
        monkeypatch.setattr(hang_watch, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(
            hang_watch, "process_state", lambda pid: "stopped" if pid == self.stopped else "active"
        )
        self.boards = [HeartbeatBoard(range(node, node + 1)) for node in range(2)]
        self.hearts = [Heartbeat(0, board.variables) for board in self.boards]
        self.agents = [
            HangWatch(folder, NodeGroup(node, 2), board, 10.0, f"n{node + 1}")
            for node, board in enumerate(self.boards)
        ]
        for heart in self.hearts:
            heart.beat("training", completed="training")

    def check(self, node: int, seconds: float = 0.0) -> list[RankFailure]:
        """Let seconds pass on a node, second by second, up to a verdict."""
        end_s = self.now_s + seconds
        while not (hung := [*self.agents[node].check({node: node})]) and self.now_s < end_s:
            self.now_s += 0.5
        return hung


def test_the_nodes_of_a_job_agree_on_the_rank_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(tmp_path, monkeypatch)
    assert not nodes.check(0, 15)  # it waits for the rank of the other node
    assert (tmp_path / "silent-0.json").is_file()
    for node in (1, 0):
        (hung,) = nodes.check(node, 15)
        assert hung.text.startswith("rank 1 on n2 hangs: no progress for 1")
    assert (tmp_path / "rank-1.error.json").is_file()


def test_progress_on_another_node_is_waited_for_and_a_rank_that_is_behind_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(tmp_path, monkeypatch)
    nodes.stopped = -1
    assert not nodes.check(0, 15)
    nodes.hearts[0].beat("training")  # what it waited for was done
    assert not nodes.check(0, 1)
    assert not (tmp_path / "silent-0.json").exists()
    assert not nodes.check(1, 15)
    (hung,) = nodes.check(0, 400)  # it has learned that it may have to wait
    assert (hung.rank, hung.node) == (1, "n2")


def test_a_node_that_says_nothing_is_not_waited_for_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(tmp_path, monkeypatch)
    (hung,) = nodes.check(0, 100)
    assert hung.rank == 0 and nodes.now_s > 60
    assert not hung.node  # it may wait for the rank of the other one
    assert hung.text.endswith("; seen on n1 only: the other nodes did not report")


def test_ranks_that_are_equally_far_are_all_suspects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(tmp_path, monkeypatch)
    nodes.stopped = -1
    assert not nodes.check(0, 15)
    (hung,) = nodes.check(1, 15)
    assert (hung.node, hung.nodes) == ("", ("n1", "n2"))
    assert hung.text.startswith("one of ranks 0, 1 (n1, n2) hangs: no progress for 1")
    assert root_cause(tmp_path) == hung


def test_a_report_that_is_withdrawn_while_it_is_read_is_no_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(tmp_path, monkeypatch)
    nodes.stopped = -1
    assert not nodes.check(1, 15)
    (tmp_path / "silent-1.json").unlink()
    monkeypatch.setattr(Path, "is_file", lambda path: True)  # as it was a moment ago
    assert not nodes.check(0, 15)


def test_equally_far_ranks_of_one_node_leave_no_doubt_about_the_node() -> None:
    silent = [
        SilentRank(
            rank=rank, node=node, silent_s=9, limit_s=5, phase="data", beats=beats, stopped=False
        )
        for rank, node, beats in [(0, "n1", 8), (2, "n2", 7), (3, "n2", 7)]
    ]
    (hung,) = blamed(silent)
    assert (hung.node, hung.nodes, hung.one_of) == ("n2", (), (2, 3))
    assert hung.text.startswith("one of ranks 2, 3 (n2) hangs: no progress for 9 s in the phase da")
    assert not blamed([])
    many = [silent[0].model_copy(update={"rank": rank, "node": ""}) for rank in range(512)]
    assert blamed(many)[0].text.startswith("one of ranks 0, 1, 2, 3, 4, 5, 6, 7 and 504 more hangs")
