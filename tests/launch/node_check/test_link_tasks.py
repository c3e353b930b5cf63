"""Which links are measured, and what their results become."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from vflops.launch.node_check.exchange import (
    Exchange,
    LinkSize,
    Present,
    Result,
    link_backend,
    plan_file,
)
from vflops.launch.node_check.link_results import links_measured
from vflops.launch.node_check.link_tasks import (
    LinkPlan,
    LinkTask,
    Rounds,
    ceiling_rounds,
    check_rounds,
    ring_rounds,
)
from vflops.launch.node_layout import NodeLayout
from vflops.launch.waiting import reserved_ports
from vflops.python_start import module_command
from vflops.record.formats.measured_node import MeasuredLinks

SECOND = LinkSize(size_bytes=1000, times_s=(1.0, 1.0, 1.0), error=0.0)
"""A message of 1,000 bytes that took a second."""


def names(nodes: int, ranks: int, slots: int) -> list[list[str]]:
    return [
        [f"{task.case('gloo')} {task.nodes}" for task in tasks]
        for tasks in ceiling_rounds(nodes, NodeLayout(ranks, slots))
    ]


def test_the_jobs_then_all_nodes_then_pairs_are_measured() -> None:
    assert names(4, ranks=4, slots=2) == [
        ["gloo-4-ranks-2-nodes (0, 1)", "gloo-4-ranks-2-nodes (2, 3)"],
        ["gloo-8-ranks-4-nodes (0, 1, 2, 3)"],
        ["gloo-pairs (0, 1)", "gloo-pairs (2, 3)"],
        ["gloo-pairs (1, 2)", "gloo-pairs (3, 0)"],
    ]


def test_jobs_that_share_a_node_reduce_on_it() -> None:
    assert names(2, ranks=2, slots=4) == [
        ["gloo-2-ranks (0,)", "gloo-2-ranks (1,)"],
        ["gloo-8-ranks-2-nodes (0, 1)"],
        ["gloo-pairs (0, 1)"],
    ]


def test_a_single_rank_has_no_links() -> None:
    assert names(1, ranks=1, slots=1) == []


def test_one_job_on_all_nodes_is_measured_once() -> None:
    assert names(2, ranks=2, slots=1)[0] == ["gloo-2-ranks-2-nodes (0, 1)"]
    assert len(names(2, ranks=2, slots=1)) == 2


@pytest.mark.parametrize("nodes", range(2, 9))
def test_tasks_of_one_round_share_no_node(nodes: int) -> None:
    for tasks in ceiling_rounds(nodes, NodeLayout(2, 1)):
        used = [node for task in tasks for node in task.nodes]
        assert len(used) == len(set(used))


@pytest.fixture
def exchange(tmp_path: Path) -> Iterator[Exchange]:
    """Four nodes that have introduced themselves."""
    with ExitStack() as reserving:
        for node in range(4):
            present = Present(
                token="7.0.0",
                name=f"n{node + 1}",
                address="localhost",
                ports=reserving.enter_context(reserved_ports(4)),
                accelerator=None,
            )
            Exchange(tmp_path, node, range(4)).introduce(present)
        yield Exchange(tmp_path, 0, range(4))


def plan_of(rounds: Rounds, connect_s: float = 5.0) -> LinkPlan:
    nodes = sorted({node for tasks in rounds for task in tasks for node in task.nodes})
    return LinkPlan(
        nodes=tuple(nodes), backend="gloo", rounds=rounds, connect_s=connect_s, seconds=2.0
    )


def measured(exchange: Exchange, results: dict[tuple[int, int], Result]) -> MeasuredLinks:
    for (number, first), result in results.items():
        result.write(exchange.result_file(number, first))
    plan = plan_of(ceiling_rounds(4, NodeLayout(2, 1)))
    return links_measured(exchange, plan, ["n1", "n2", "n3", "n4"])


def all_results() -> dict[tuple[int, int], Result]:
    rounds = ceiling_rounds(4, NodeLayout(2, 1))
    return {
        (number, task.nodes[0]): Result(sizes=(SECOND,))
        for number, tasks in enumerate(rounds)
        for task in tasks
    }


def test_the_value_is_the_bus_bandwidth(exchange: Exchange) -> None:
    found = measured(exchange, all_results())
    values = {(item.benchmark, item.case): item.value for item in found.measurements}
    assert values == {
        ("all-reduce", "gloo-2-ranks-2-nodes"): 1000.0,  # 2(n−1)/n = 1
        ("all-reduce", "gloo-4-ranks-4-nodes"): 1500.0,
        ("point-to-point", "gloo-pairs"): 2000.0,  # there and back
    }
    assert found.faults == ()
    assert all(len(item.samples) == 3 for item in found.measurements)


def test_the_fastest_group_is_the_ceiling_and_all_are_listed(exchange: Exchange) -> None:
    results = all_results()
    results[0, 0] = Result(sizes=(SECOND.model_copy(update={"times_s": (2.0,) * 3}),))
    group = measured(exchange, results).measurements[0]
    assert (group.value, group.node) == (1000.0, "n3, n4")
    assert {str(trial.setting["nodes"]): trial.value for trial in group.tried} == {
        "n1, n2": 500.0,
        "n3, n4": 1000.0,
    }


def test_the_pair_of_median_speed_is_the_ceiling(exchange: Exchange) -> None:
    results = all_results()
    for place, time_s in {(2, 0): 4.0, (2, 2): 2.0, (3, 1): 1.0, (3, 3): 0.5}.items():
        results[place] = Result(sizes=(SECOND.model_copy(update={"times_s": (time_s,) * 3}),))
    pairs = measured(exchange, results).measurements[-1]
    assert (pairs.value, pairs.node) == (1000.0, "n3, n4")
    assert [trial.value for trial in pairs.tried] == [500.0, 1000.0, 2000.0, 4000.0]


def test_a_fault_is_kept_and_does_not_hide_the_other_links(exchange: Exchange) -> None:
    results = all_results()
    results[2, 0] = Result(fault="rank 0: Connection refused")
    del results[3, 1]
    found = measured(exchange, results)
    assert found.faults == (
        "point-to-point, n1, n2: rank 0: Connection refused",
        "point-to-point, n2, n3: no result",
    )
    pairs = found.measurements[-1]
    assert {trial.setting["nodes"] for trial in pairs.tried} == {"n3, n4", "n4, n1"}


def test_wrong_sums_give_no_ceiling(exchange: Exchange) -> None:
    results = all_results()
    results[1, 0] = Result(sizes=(SECOND.model_copy(update={"error": 0.5}),))
    whole = measured(exchange, results).measurements[1]
    assert whole.value is None
    assert "wrong result" in (whole.reason or "")


def test_an_error_says_more_than_the_vain_wait_of_the_other_node(exchange: Exchange) -> None:
    task = LinkTask(benchmark="all-reduce", nodes=(2, 3))
    assert exchange.result(0, task) is None
    Result(fault="rank 0: it waited", late=True).write(exchange.result_file(0, 2))
    assert exchange.result(0, task) == Result(fault="rank 0: it waited", late=True)
    Result(fault="rank 1: no interface").write(exchange.result_file(0, 3))
    assert exchange.result(0, task) == Result(fault="rank 1: no interface")


def test_a_fault_of_one_node_hides_what_the_other_measured(exchange: Exchange) -> None:
    task = LinkTask(benchmark="all-reduce", nodes=(2, 3))
    Result(sizes=(SECOND,)).write(exchange.result_file(0, 2))
    assert exchange.result(0, task) == Result(sizes=(SECOND,))
    Result(fault="rank 1: reset").write(exchange.result_file(0, 3))
    assert exchange.result(0, task) == Result(fault="rank 1: reset")


@pytest.mark.parametrize(
    "kinds, backend",
    [(("cuda", "cuda"), "nccl"), ((None, "cuda"), "gloo"), ((None, None), "gloo"), ((), "gloo")],
)
def test_gloo_connects_nodes_unless_all_have_gpus(
    kinds: tuple[str | None, ...], backend: str
) -> None:
    nodes = [
        Present(token="t", name="n", address="a", ports=(), accelerator=kind) for kind in kinds
    ]
    assert link_backend(nodes) == backend


def test_a_task_counts_its_ranks() -> None:
    task = LinkTask(benchmark="all-reduce", nodes=(0, 1, 2), ranks_per_node=4)
    assert (task.ranks, task.bus_share) == (12, 2 * 11 / 12)


@pytest.mark.parametrize("size", range(1, 9))
def test_every_pair_of_the_ring_is_measured_once(size: int) -> None:
    nodes = [10 * number for number in range(size)]
    turns = ring_rounds(nodes)
    pairs = {frozenset(pair) for turn in turns for pair in turn}
    ring = {frozenset((nodes[k], nodes[(k + 1) % size])) for k in range(size)}
    assert pairs == {pair for pair in ring if len(pair) == 2}
    assert sum(map(len, turns)) == len(pairs)
    assert len(turns) <= 3
    for turn in turns:
        busy = [node for pair in turn for node in pair]
        assert len(busy) == len(set(busy))


def test_a_check_measures_pairs_and_then_all_nodes() -> None:
    assert [[task.nodes for task in tasks] for tasks in check_rounds((1, 4, 6), 1 << 10)] == [
        [(1, 4)],
        [(4, 6)],
        [(6, 1)],
        [(1, 4, 6)],
    ]
    assert len(check_rounds((1, 4), 1 << 10)) == 1 and check_rounds((1,), 1 << 10) == ()


def measure_together(
    exchange: Exchange, plan: LinkPlan, environments: dict[int, dict[str, str]]
) -> None:
    """Start the link program of every node on this machine, and wait for all of them."""
    plan.write(plan_file(exchange.path))
    programs = [
        subprocess.Popen(
            module_command("vflops.launch.node_check.link_ranks", exchange.path, node),
            env={**os.environ, "OMP_NUM_THREADS": "1", **environments.get(node, {})},
            stderr=subprocess.DEVNULL,
        )
        for node in plan.nodes
    ]
    assert [program.wait(300) for program in programs] == [0] * len(programs)


def test_nodes_measure_pairs_then_all(exchange: Exchange) -> None:
    plan = plan_of(check_rounds((0, 1, 3), 1 << 16))
    measure_together(exchange, plan, {})
    for number, tasks in enumerate(plan.rounds):
        for task in tasks:
            result = exchange.result(number, task)
            assert result is not None and result.fault is None
            assert [size.size_bytes for size in result.sizes] == [1 << 16]
            assert not exchange.result_file(number, task.nodes[1]).exists()


def test_a_node_with_a_broken_network_spoils_no_other_pair(exchange: Exchange) -> None:
    plan = plan_of(check_rounds((0, 1, 2, 3), 1 << 16))
    measure_together(exchange, plan, {2: {"GLOO_SOCKET_IFNAME": "nosuch0"}})
    results = {
        task.nodes: exchange.result(number, task)
        for number, tasks in enumerate(plan.rounds)
        for task in tasks
    }
    assert results.pop((0, 1, 2, 3)) is None  # it would hang
    broken = {nodes for nodes, result in results.items() if result is None or result.fault}
    assert broken == {(1, 2), (2, 3)}
    for nodes in broken:
        result = results[nodes]
        assert result is not None and "nosuch0" in (result.fault or "")
        assert not result.late


@pytest.mark.gpu
@pytest.mark.parametrize("interface", [None, "nosuch0"])
def test_nodes_with_gpus_need_nccl_and_gloo(exchange: Exchange, interface: str | None) -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no NVIDIA GPU")
    plan = plan_of(check_rounds((0, 1), 1 << 20), connect_s=60.0)
    hosts = {node: {"NCCL_HOSTID": f"n{node}"} for node in (0, 1)}  # one GPU serves as two
    if interface is not None:
        hosts[1]["GLOO_SOCKET_IFNAME"] = interface
    measure_together(exchange, plan.model_copy(update={"backend": "nccl"}), hosts)
    result = exchange.result(0, plan.rounds[0][0])
    assert result is not None
    assert (result.fault is None) == (interface is None) == bool(result.sizes)
    assert interface is None or interface in str(result.fault)
