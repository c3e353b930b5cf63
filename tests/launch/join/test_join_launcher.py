"""The controller's part of a run on joining nodes, with files as nodes write them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vflops.config.launch import LaunchSettings
from vflops.config.profiles import tiny
from vflops.errors import Interrupted, Left, RunFailed, UsageError
from vflops.launch.agent_report import AgentReport
from vflops.launch.join import join_launcher
from vflops.launch.join.join_files import (
    ControllerFile,
    NodeFile,
    OrdersFile,
    controller_file,
    node_file,
    orders_file,
    read_orders,
)
from vflops.launch.join.join_launcher import JoinLauncher
from vflops.launch.launcher import Ending
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.node import Clock
from vflops.record.installed_package import installed_package

_SAME_CLOCK = Clock(offset_s=0.001, uncertainty_s=0.001)


class Run:
    """A run and the nodes that a test lets join it."""

    def __init__(
        self,
        root: Path,
        monkeypatch: pytest.MonkeyPatch,
        benchmarks: tuple[str, ...] = (),
        **launch: Any,
    ) -> None:
        settings = tiny().model_copy(
            update={
                "launch": LaunchSettings(on="join", **{"nodes": 2, **launch}),
                "micro": tiny().micro.model_copy(update={"benchmarks": benchmarks}),
            }
        )
        self.folder = RunFolder.create(root, "image-classification", settings)
        controller_file(self.folder.path).parent.mkdir()
        self.now_s = 1000.0
        monkeypatch.setattr(join_launcher, "time", SimpleNamespace(monotonic=self._time))
        self.nodes: dict[str, NodeFile] = {}
        self.jobs: JoinLauncher | None = None

    def _time(self) -> float:
        return self.now_s

    def launcher(self, jobs: int, ranks: int = 1, device: str = "cpu") -> JoinLauncher:
        records = []
        for job in range(1, jobs + 1):
            self.folder.job_file(job).parent.mkdir(parents=True, exist_ok=True)
            train = {"train": {"device": device}}
            records.append(cast(JobRecord, SimpleNamespace(job=job, ranks=ranks, settings=train)))
        self.jobs = JoinLauncher(self.folder, records)
        return self.jobs

    def join(self, *names: str) -> None:
        """Let nodes join."""
        for name in names:
            self.node(name)

    def node(self, key: str, /, **changes: object) -> None:
        """Write what a node writes at its next beat, and have the controller read it.

        A new node is known to live only at its second beat.
        """
        new = key not in self.nodes or "token" in changes
        self._write(key, changes)
        if new and self.jobs is not None:
            self._write(key, {})

    def _write(self, key: str, changes: Mapping[str, object]) -> None:
        before = self.nodes.get(
            key,
            NodeFile(
                token=f"{key}-1",
                name=key,
                address=key,
                pid=7,
                package_sha256=installed_package().sha256,
                versions={"torch": "2.13"},
                cores=4,
                accelerators=0,
                clock=_SAME_CLOCK,
            ),
        )
        after = before.model_copy(update={"beat": before.beat + 1, **changes})
        self.nodes[key] = after
        self.now_s += 0.3  # the controller reads the files no more often
        after.write(node_file(self.folder.path, after.token))
        if self.jobs is not None:
            self.jobs.start({})

    def beat(self, *names: str, seconds: float = 1.0) -> None:
        self.now_s += seconds
        for name in names:
            self.node(name)

    def orders(self, name: str) -> OrdersFile:
        orders = read_orders(self.folder.path, self.nodes[name].token)
        assert orders is not None
        return orders

    def jobs_of(self, name: str) -> dict[str, tuple[int, ...]]:
        return {task.arguments[0]: task.slots for task in self.orders(name).tasks}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


@pytest.fixture
def pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a run that puts two ranks on each node."""
    return Run(tmp_path, monkeypatch, ranks_per_node=2)


def test_jobs_wait_for_all_nodes_and_say_for_how_many(pairs: Run) -> None:
    jobs = pairs.launcher(4)
    assert jobs.location(1) == "waiting for 2 of 2 nodes"
    pairs.node("n1")
    pairs.beat("n1")
    assert jobs.start({1: 1, 2: 1, 3: 1, 4: 1}) == ()
    assert jobs.location(1) == "waiting for 1 of 2 nodes: n1 joined"
    pairs.node("n2")
    pairs.beat("n1", "n2")
    assert jobs.start({1: 1, 2: 1, 3: 1, 4: 1}) == [1, 2, 3, 4]
    assert {**pairs.jobs_of("n1"), **pairs.jobs_of("n2")}.keys() == {"1", "2", "3", "4"}
    assert (
        sorted(pairs.jobs_of("n1").values()) == sorted(pairs.jobs_of("n2").values()) == [(0,), (1,)]
    )
    assert set(jobs.active_jobs()) == {1, 2, 3, 4}


def test_a_model_of_several_nodes_has_one_task_on_each(pairs: Run) -> None:
    jobs = pairs.launcher(1, ranks=4)
    pairs.join("n1", "n2")
    assert jobs.start({1: 1}) == [1]
    (first,), (second,) = pairs.orders("n1").tasks, pairs.orders("n2").tasks
    assert (first.node, second.node, first.nodes) == (0, 1, 2)
    assert first.token == second.token and first.slots == second.slots == (0, 1)
    assert jobs.location(1) == "n1, n2"


def test_a_lost_node_gives_its_jobs_to_the_others(pairs: Run) -> None:
    jobs = pairs.launcher(1, ranks=4)
    pairs.join("n1", "n2", "n3")
    jobs.start({1: 3})
    for _ in range(2):
        pairs.beat("n1", "n3", seconds=4)
        assert set(jobs.active_jobs()) == {1}
    pairs.beat("n1", "n3", seconds=4)
    assert (jobs.ending(1).reason or "").startswith("n2 is lost: no sign of life for 1")
    assert [*jobs.ending(1).suspects] == ["n2"]
    (left,) = pairs.orders("n1").tasks
    assert left.killed and set(jobs.active_jobs()) == {1}  # its other half is still being ended
    pairs.beat("n3")
    pairs.node("n1", ended={left.id: -9})
    assert not jobs.active_jobs()
    pairs.beat("n1", "n3")
    assert jobs.start({1: 2}) == [1]
    assert jobs.location(1) == "n1, n3"
    (lost,) = pairs.orders("n2").tasks
    assert lost.killed, "if it comes back, it must not go on with the job"


def test_a_node_that_returns_is_used_again(run: Run) -> None:
    jobs = run.launcher(2)
    run.join("n1", "n2")
    jobs.start({1: 1})
    run.node("n1", leaving=True, ended={})
    run.beat("n2")
    assert jobs.start({2: 1}) == [2] and run.jobs_of("n2").keys() == {"2"}
    run.beat("n2")
    run.node("n1", token="n1-2", leaving=False)
    run.beat("n1", "n2")
    assert jobs.start({1: 1}) == [1]
    assert run.jobs_of("n1").keys() == {"1"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "n1", "pid": 9}, "n1 has joined already (process 7 there)"),
        ({"package_sha256": "0" * 64}, "has another vflops than the controller"),
        ({"versions": {"torch": "2.12"}}, "n2 has torch 2.12, the other nodes 2.13"),
        (
            {"clock": Clock(offset_s=-60.0, uncertainty_s=0.1)},
            "the clock of n2 differs by -60.0 s",
        ),
        ({"cores": 1}, "n2 has 1 core, room for 1 rank, but 2 run on each node"),
    ],
)
def test_a_node_that_cannot_take_part_is_told_why(
    run: Run, changes: dict[str, object], reason: str
) -> None:
    jobs = run.launcher(2, ranks=2)
    run.node("n1")
    run.beat("n1")
    jobs.active_jobs()
    run.node("n2", **changes)
    run.beat("n1")
    assert jobs.start({1: 1, 2: 1}) == ()
    refused = run.orders("n2")
    assert reason in (refused.refused or "") and refused.hint


def test_every_node_measures_its_ceilings_before_its_first_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, benchmarks=("gemm",))
    jobs = run.launcher(2)
    run.join("n1", "n2")
    assert jobs.start({1: 1, 2: 1}) == () and jobs.location(1) == "measuring ceilings"
    (first,), (second,) = run.orders("n1").tasks, run.orders("n2").tasks
    assert (first.program, first.nodes, first.token) == ("ceilings", 2, second.token)
    run.node("n1", ended={first.id: 0})
    assert jobs.start({1: 1, 2: 1}) == ()
    run.node("n2", ended={second.id: 0})
    assert jobs.start({1: 1}) == [1]
    run.node("n3")
    run.node("n1", leaving=True)
    run.node("n2", leaving=True)
    assert jobs.start({2: 1}) == []
    (alone,) = run.orders("n3").tasks
    assert (alone.program, alone.nodes) == ("ceilings", 1)
    run.node("n3", ended={alone.id: 0})
    assert jobs.start({2: 1}) == [2] and jobs.location(2) == "n3"


def test_another_controller_finds_the_jobs(run: Run) -> None:
    run.join("n1", "n2")
    first = run.launcher(2)
    run.beat("n1", "n2")
    first.start({1: 1, 2: 1})
    run.beat("n1", "n2")
    later = run.launcher(2)
    assert set(later.active_jobs()) == {1, 2}
    assert {later.location(1), later.location(2)} <= {"n1", "n2"}
    later.stop()
    tasks = [task for name in ("n1", "n2") for task in run.orders(name).tasks]
    assert [task.stops for task in tasks] == [1, 1]
    later.kill()
    assert all(task.killed for name in ("n1", "n2") for task in run.orders(name).tasks)


def test_an_agent_says_why_its_job_ended(run: Run) -> None:
    jobs = run.launcher(1)
    run.join("n1", "n2")
    log = run.folder.job_file(1).with_name("agent.log")
    run.beat("n1", "n2")
    old = AgentReport(node="n9", job=1, outcome="failed", message="an earlier one")
    log.write_text(old.model_dump_json() + "\n")
    jobs.start({1: 1})
    assert jobs.ending(1).report is None
    report = AgentReport(node="n1", job=1, outcome="elsewhere", message="in use")
    with log.open("a") as file:
        file.write(report.model_dump_json() + "\n")
    assert jobs.ending(1) == Ending("elsewhere", None, report)


@pytest.mark.parametrize(
    ("error", "over", "complete"),
    [
        (None, "is complete", True),
        (KeyboardInterrupt(), "was interrupted", False),
        (RunFailed("no disk"), "has failed: no disk", False),
        (Left("its jobs continue"), None, False),
    ],
)
def test_nodes_learn_how_the_run_ended(
    tmp_path: Path, error: BaseException | None, over: str | None, complete: bool
) -> None:
    folder = RunFolder.create(tmp_path, "image-classification", tiny())
    try:
        with JoinLauncher.controlling(folder):
            file = ControllerFile.read(controller_file(folder.path))
            assert file.over is None
            end_s = time.monotonic() + 10
            while ControllerFile.read(controller_file(folder.path)).beat == file.beat:
                assert time.monotonic() < end_s, "the controller shows no sign of life"
                time.sleep(0.1)
            if error is not None:
                raise error
    except (KeyboardInterrupt, RunFailed, Interrupted):
        pass
    file = ControllerFile.read(controller_file(folder.path))
    assert (file.over, file.complete) == (over, complete)


def test_the_number_of_nodes_is_needed() -> None:
    with pytest.raises(UsageError, match="without --nodes"):
        JoinLauncher.check(LaunchSettings(on="join"))
    with pytest.raises(UsageError, match="start their own container"):
        JoinLauncher.check(LaunchSettings(on="join", nodes=2, container="x.sif"))


def test_only_a_controller_admits_nodes(run: Run) -> None:
    run.node("n1")
    looking = run.launcher(1)  # as vflops cancel does
    run.jobs = None
    for _ in range(2):
        run.node("n1")
        assert not looking.active_jobs()
    assert not orders_file(run.folder.path, "n1-1").exists()
    looking.start({1: 1})
    run.now_s += 1
    looking.start({1: 1})
    assert orders_file(run.folder.path, "n1-1").is_file()


def test_dead_nodes_of_an_earlier_controller_get_no_jobs(pairs: Run) -> None:
    first = pairs.launcher(1, ranks=4)
    pairs.join("n1", "n2")
    first.start({1: 1})
    later = pairs.launcher(1, ranks=4)  # and both nodes have died meanwhile
    assert set(later.active_jobs()) == {1}
    pairs.join("n3", "n4")
    for _ in range(3):
        pairs.beat("n3", "n4", seconds=4.5)
    assert not later.active_jobs()
    assert (later.ending(1).reason or "").endswith("s") and pairs.orders("n1").tasks[0].killed
    assert later.start({1: 1}) == [1] and later.location(1) == "n3, n4"
    again = pairs.launcher(1, ranks=4)  # its own dead nodes must not end the job of the new ones
    for _ in range(4):
        pairs.beat("n3", "n4", seconds=4.5)
    assert set(again.active_jobs()) == {1}
    assert not any(task.killed for name in ("n3", "n4") for task in pairs.orders(name).tasks)


def test_a_node_may_return_while_its_old_agent_is_not_known_to_be_dead(run: Run) -> None:
    run.node("n1")  # the agent of an earlier start, which died with the allocation
    jobs = run.launcher(1)
    run.nodes["old"] = run.nodes.pop("n1")
    run.node("n1", token="n1-2")
    assert read_orders(run.folder.path, "n1-2") is None, "it waits until the other one is lost"
    for _ in range(3):
        run.beat("n1", seconds=4.5)
    assert run.orders("n1").refused is None
    run.node("n2")
    assert jobs.start({1: 1}) == [1]


def test_a_file_server_that_does_not_respond_loses_no_node(run: Run) -> None:
    jobs = run.launcher(2)
    run.join("n1", "n2")
    jobs.start({1: 1, 2: 1})
    run.now_s += 60
    assert set(jobs.active_jobs()) == {1, 2}
    run.beat("n1", "n2", seconds=3)
    assert set(jobs.active_jobs()) == {1, 2}


def test_a_controller_ends_what_was_given_to_half_of_the_nodes(pairs: Run) -> None:
    first = pairs.launcher(1, ranks=4)
    pairs.join("n1", "n2")
    first.start({1: 1})
    second = pairs.orders("n2")
    second.model_copy(update={"tasks": ()}).write(orders_file(pairs.folder.path, "n2-1"))
    later = pairs.launcher(1, ranks=4)
    later.start({})
    (half,) = pairs.orders("n1").tasks
    assert half.killed


def test_a_node_whose_clock_cannot_be_read_is_refused_after_a_while(run: Run) -> None:
    jobs = run.launcher(1)
    unread = Clock(offset_s=None, uncertainty_s=None, fault="no connection to h1, port 7")
    run.node("n1", clock=unread)
    run.node("n2", clock=unread)
    assert read_orders(run.folder.path, "n1-1") is None, "it may read the clock later"
    run.node("n2", clock=_SAME_CLOCK)
    assert run.orders("n2").refused is None
    for _ in range(4):
        run.beat("n1", "n2", seconds=4)
    refused = run.orders("n1")
    assert "cannot be compared" in (refused.refused or "") and "port 7" in (refused.refused or "")
    assert jobs.start({1: 1}) == ()
