"""Nodes that join are divided as plan says, and as SLURM divides those of an allocation."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.launch.join.test_join_launcher import Run
from vflops.config.launch import LaunchSettings
from vflops.config.profiles import tiny
from vflops.config.settings import Settings
from vflops.errors import RunFailed, UsageError
from vflops.launch.join import join_launcher, joined_node
from vflops.launch.join.join_files import Task
from vflops.launch.join.joined_node import resources
from vflops.launch.local.local_launcher import Slot
from vflops.launch.nodes import usable_nodes
from vflops.launch.placement import NodeResources, plan
from vflops.launch.sizing import rank_share
from vflops.run.run_size import request_lines, size_run


def settings(**launch: Any) -> Settings:
    section = {"train": {"device": "cpu", "ranks": 1}}
    return tiny().model_copy(
        update={
            "launch": LaunchSettings(on="join", **launch),
            "workloads": {"image-classification": section},
        }
    )


def machine(monkeypatch: pytest.MonkeyPatch, cores: int, gpus: int) -> None:
    """Let the machine that starts the run have these resources."""
    monkeypatch.setattr(
        join_launcher, "this_machine", lambda device: NodeResources("here", cores, gpus=gpus)
    )


def test_models_are_spread_over_gpu_nodes_and_get_all_of_their_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch)
    jobs = run.launcher(2, device="auto")
    for name in ("n1", "n2"):
        run.node(name, cores=64, accelerators=8)
    assert jobs.start({1: 1, 2: 1}) == [1, 2]
    for name in ("n1", "n2"):
        (task,) = run.orders(name).tasks
        assert (task.node_slots, task.cores_per_slot, task.gpus_per_slot) == (1, 64, 1)


def test_a_rank_may_have_several_accelerators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, gpus_per_rank=2, ranks_per_node=4)
    jobs = run.launcher(1, ranks=8, device="auto")
    for name in ("n1", "n2"):
        run.node(name, cores=64, accelerators=8)
    assert jobs.start({1: 1}) == [1]
    (task,) = run.orders("n2").tasks
    assert (task.slots, task.cores_per_slot, task.gpus_per_slot) == ((0, 1, 2, 3), 16, 2)


def test_later_jobs_divide_the_nodes_anew(run: Run) -> None:
    first = run.launcher(2)
    run.join("n1", "n2")
    assert first.start({1: 1, 2: 1}) == [1, 2]
    (small,) = run.orders("n1").tasks
    later = run.launcher(3, ranks=4)
    run.beat("n1", "n2")
    assert later.start({3: 1}) == [], "the small jobs still run"
    for name in ("n1", "n2"):
        run.node(name, ended={task.id: 0 for task in run.orders(name).tasks})
    assert later.start({3: 1}) == [3]
    (_, large) = run.orders(later.location(3)).tasks
    assert (small.node_slots, small.cores_per_slot) == (1, 4)
    assert (large.slots, large.node_slots, large.cores_per_slot) == ((0, 1, 2, 3), 4, 1)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


def test_a_job_that_can_never_fit_ends_the_run(run: Run) -> None:
    run.launcher(1)
    run.join("n1", "n2")
    later = run.launcher(1, ranks=8)  # a workload that was added when the run was resumed
    with pytest.raises(RunFailed, match="room for 8 ranks; 0 of those that joined have it: n1, n2"):
        run.beat("n1", "n2")
        later.start({1: 1})


def test_a_node_that_is_too_small_for_a_later_workload_is_refused(run: Run) -> None:
    sections = {"image-classification": {"train": {"device": "cpu", "ranks": 8}}}
    run.folder.record.settings.workloads.update(sections)
    run.launcher(1, ranks=1)
    run.join("n1")
    assert "n1 has 4 cores, room for 4 ranks, but 8 run" in (run.orders("n1").refused or "")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"accelerators": 0}, "n2 has 0 accelerators, but n1 has 8"),
        ({"accelerators": 8, "cores": 0}, "n2 offers 0 cores"),
    ],
)
def test_unlike_nodes_are_refused(run: Run, changes: dict[str, Any], reason: str) -> None:
    run.launcher(2, device="auto")
    run.node("n1", cores=64, accelerators=8)
    run.node("n2", **changes)
    assert reason in (run.orders("n2").refused or "")


def test_join_places_what_plan_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random_sizes, compared = random.Random(5), 0
    for number in range(60):
        cores, gpus = random_sizes.choice([4, 8, 64]), random_sizes.choice([0, 0, 2, 4])
        nodes, models = random_sizes.randint(1, 4), random_sizes.choice([None, 1, 2, 4])
        ranks = random_sizes.choice([None, 1, 2, 4])
        machine(monkeypatch, cores, gpus)
        asked = settings(nodes=nodes)
        train = asked.workloads["image-classification"]["train"]
        train.update(device="auto", ranks=ranks or 1, framework="pytorch", precision="fp32")
        train.update(batch=256)
        given = {"train.ranks"} if ranks else set()
        given |= {"bagging.models"} if models else set()
        asked = asked.model_copy(
            update={"bagging": asked.bagging.model_copy(update={"models": models or 1})}
        )
        size = size_run(asked, given).shapes["image-classification"]
        per_node = None if size.ranks_per_node == size.ranks else size.ranks_per_node
        launch = asked.launch.model_copy(update={"ranks_per_node": per_node})
        usable = usable_nodes(launch, "auto", size.ranks)
        try:
            planned = plan(usable, size.models, size.ranks)
        except UsageError:
            continue
        run = Run(tmp_path / str(number), monkeypatch, nodes=nodes, ranks_per_node=per_node)
        jobs = run.launcher(size.models, ranks=size.ranks, device="auto")
        for node in range(nodes):
            run.node(f"n{node}", cores=cores, accelerators=gpus)
        started = jobs.start(dict.fromkeys(range(1, size.models + 1), 1))
        assert len(started) == size.models
        tasks = {f"n{node}": run.orders(f"n{node}").tasks for node in range(nodes)}
        on_nodes = [sum(len(task.slots) for task in of_node) for of_node in tasks.values()]
        places = Counter(
            name for item in planned.placements for name, slots in item.places for _ in slots
        )
        assert sorted(filter(None, on_nodes)) == sorted(places.values())
        share = rank_share(usable, usable[0].slots, launch, whole=True)
        got = {(t.cores_per_slot, t.gpus_per_slot) for of_node in tasks.values() for t in of_node}
        assert got == {(share.cores, share.gpus)}
        compared += 1
    assert compared > 20


def test_plan_counts_the_nodes_that_join(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cores=4, gpus=0)
    asked = settings(nodes=1, ranks_per_node=2)
    asked = asked.model_copy(
        update={
            "bagging": asked.bagging.model_copy(update={"models": 2}),
            "workloads": {"image-classification": {}},
        }
    )
    assert request_lines(asked) == (["1 node × 2 ranks, 2 cores a rank"], [])


def test_nodes_unlike_the_machine_that_starts_the_run_can_be_described(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(monkeypatch, cores=4, gpus=0)
    described = settings(nodes=2, ranks_per_node=8).launch
    assert [node.slots for node in usable_nodes(described, "auto", 8)] == [8, 8]
    with pytest.raises(UsageError, match="takes no rank of the run"):
        usable_nodes(settings(nodes=2, gpus_per_rank=1).launch, "auto", 8)


def test_a_node_gives_a_task_the_devices_of_its_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def split(topology: Any, cores: Any, slots: int, **how: Any) -> list[Slot]:
        asked.append((slots, how))
        return [Slot(slot, (2 * slot, 2 * slot + 1)) for slot in range(slots)]

    monkeypatch.setattr(joined_node, "split_cores", split)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    task = Task(
        id="t",
        program="agent",
        arguments=("1",),
        node=0,
        nodes=1,
        token="t",
        slots=(1,),
        node_slots=2,
        cores_per_slot=2,
        gpus_per_slot=2,
        log="x",
    )
    assert resources(task) == {"VFLOPS_CORES": "2,3", "CUDA_VISIBLE_DEVICES": "6,7"}
    assert asked == [(2, {"gpus": [4, 6], "cores_per_slot": 2})]
    alone = task.model_copy(update={"gpus_per_slot": 0})
    assert resources(alone) == {"VFLOPS_CORES": "2,3"}
