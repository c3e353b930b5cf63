"""Which links are measured, and what their results become."""

from __future__ import annotations

from pathlib import Path

import pytest

from vflops.launch.node_ceilings.exchange import Exchange, LinkSize, Result
from vflops.launch.node_ceilings.link_ranks import link_backend
from vflops.launch.node_ceilings.link_results import links_measured
from vflops.launch.node_ceilings.link_tasks import LinkTask, link_rounds
from vflops.launch.node_layout import NodeLayout
from vflops.record.formats.measured_node import MeasuredLinks

SECOND = LinkSize(size_bytes=1000, times_s=(1.0, 1.0, 1.0), error=0.0)
"""A message of 1,000 bytes that took a second."""


def names(nodes: int, ranks: int, slots: int) -> list[list[str]]:
    return [
        [f"{task.case('gloo')} {task.nodes}" for task in tasks]
        for tasks in link_rounds(nodes, NodeLayout(ranks, slots))
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
    for tasks in link_rounds(nodes, NodeLayout(2, 1)):
        used = [node for task in tasks for node in task.nodes]
        assert len(used) == len(set(used))


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    """Four nodes that have introduced themselves."""
    for node in range(4):
        one = Exchange(tmp_path, "7.0.0", node, 4)
        one.introduce(f"n{node + 1}", "host", None, rounds=4)
    return Exchange(tmp_path, "7.0.0", 0, 4)


def measured(exchange: Exchange, results: dict[tuple[int, int], Result]) -> MeasuredLinks:
    for (number, first), result in results.items():
        result.write(exchange.result_file(number, first))
    rounds = link_rounds(4, NodeLayout(2, 1))
    return links_measured(exchange, rounds, ["n1", "n2", "n3", "n4"])


def all_results() -> dict[tuple[int, int], Result]:
    rounds = link_rounds(4, NodeLayout(2, 1))
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


@pytest.mark.parametrize("kinds, backend", [((None, "cuda"), "gloo"), ((None, None), "gloo")])
def test_gloo_connects_nodes_unless_all_have_gpus(
    tmp_path: Path, kinds: tuple[str | None, ...], backend: str
) -> None:
    for node, kind in enumerate(kinds):
        Exchange(tmp_path, "7.0.0", node, 2).introduce(f"n{node}", "host", kind, rounds=1)
    assert link_backend(Exchange(tmp_path, "7.0.0", 0, 2)) == backend


def test_a_task_counts_its_ranks() -> None:
    assert LinkTask("all-reduce", (0, 1, 2), 4).ranks == 12
