"""Resources become slots and shares in one place, and what is planned is what is started."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch.node_layout import NodeLayout
from vflops.launch.placement import THIS_MACHINE, Node, NodeResources, plan
from vflops.launch.sizing import Asked, RankShare, Shape, rank_share, shape, sized
from vflops.launch.slurm.slurm_resources import gpus_of

H100 = NodeResources("g", cores=96, memory_mb=1_000_000, gpus=8, gpu_type="h100")
CPU = NodeResources("c", cores=32, memory_mb=100_000)


def nodes_of(
    *resources: NodeResources, device: str = "auto", **launch: Any
) -> tuple[list[Node], LaunchSettings]:
    settings = LaunchSettings(**launch)
    named = [replace(item, name=f"n{number}") for number, item in enumerate(resources)]
    return sized(named, settings, device), settings


@pytest.mark.parametrize(
    ("resources", "launch", "slots", "share"),
    [
        (H100, {}, 8, RankShare(12, 1, "h100", 118_750)),
        (H100, {"gpus_per_rank": 2}, 4, RankShare(24, 2, "h100", 237_500)),
        (H100, {"gpus_per_rank": 0}, 96, RankShare(1, 0, "h100", 9_895)),
        (H100, {"cores_per_rank": 4}, 8, RankShare(4, 1, "h100", 39_583)),
        (H100, {"cores_per_rank": 32}, 3, RankShare(32, 1, "h100", 118_750)),
        (H100, {"ranks_per_node": 4}, 4, RankShare(12, 1, "h100", 118_750)),
        (CPU, {}, 32, RankShare(1, 0, None, 2_968)),
        (CPU, {"cores_per_rank": 8}, 4, RankShare(8, 0, None, 23_750)),
        (CPU, {"ranks_per_node": 2}, 2, RankShare(16, 0, None, 47_500)),
    ],
)
def test_slots_and_shares(
    resources: NodeResources, launch: dict[str, Any], slots: int, share: RankShare
) -> None:
    nodes, settings = nodes_of(resources, **launch)
    assert nodes[0].slots == slots
    assert rank_share(nodes, slots, settings) == share


def test_with_the_whole_node_its_ranks_share_all_of_it() -> None:
    nodes, settings = nodes_of(H100)
    assert rank_share(nodes, 4, settings, whole=True).cores == 24
    assert rank_share(nodes, 4, settings).cores == 12  # others may use the other GPUs


def test_a_trial_of_a_layout_keeps_the_gpus_without_using_them() -> None:
    nodes, settings = nodes_of(H100, device="cpu", gpus_per_rank=1)
    assert (nodes[0].slots, rank_share(nodes, 8, settings).gpus) == (8, 1)


def test_where_some_nodes_have_gpus_the_others_take_no_rank() -> None:
    nodes, _ = nodes_of(CPU, H100, CPU)
    assert [node.name for node in nodes] == ["n1"]


def test_fewer_cores_than_gpus_are_refused() -> None:
    nodes, settings = nodes_of(replace(H100, cores=2))
    with pytest.raises(UsageError, match="n0 offers 2 cores to 8 ranks") as refused:
        rank_share(nodes, 8, settings)
    assert "--exclusive" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("(null)", {}),
        ("gpu:8", {"": 8}),
        ("gpu:h100:8(S:0-1)", {"h100": 8}),
        ("gpu:a100:4(S:0),gpu:v100:2(S:1),shard:80", {"a100": 4, "v100": 2}),
        ("gpu:a100_1g.5gb:7(IDX:0-6)", {"a100_1g.5gb": 7}),
        ("craynetwork:4,gpu:h100:8(IDX:0-7)", {"h100": 8}),
    ],
)
def test_gpus_of_generic_resources(text: str, gpus: dict[str, int]) -> None:
    assert gpus_of(text) == gpus


def sizes(chosen: Shape) -> tuple[int, int, int, int]:
    return chosen.models, chosen.ranks, len(chosen.nodes), chosen.ranks_per_node


@pytest.mark.parametrize(
    ("resources", "asked", "expected"),
    [
        (H100, Asked(nodes=8), (8, 8, 8, 8)),  # table 2: P is the GPUs of a node, M the nodes
        (H100, Asked(), (1, 8, 8, 8)),
        (H100, Asked(models=4), (4, 8, 8, 8)),
        (H100, Asked(models=16), (16, 4, 8, 8)),  # two models a node
        (H100, Asked(nodes=4, ranks=16), (2, 16, 4, 8)),  # two nodes a model
        (H100, Asked(nodes=4, models=2), (2, 16, 4, 8)),
        (H100, Asked(nodes=4, ranks=4), (8, 4, 4, 8)),
        (H100, Asked(nodes=4, ranks=4, models=4), (4, 4, 4, 4)),  # spread over the nodes
        (H100, Asked(scale=32), (4, 8, 8, 8)),
        (H100, Asked(nodes=8, most_ranks=4), (16, 4, 8, 8)),
        (CPU, Asked(nodes=8), (8, 1, 8, 1)),  # on CPUs P stays 1
        (CPU, Asked(), (1, 1, 8, 1)),
        (CPU, Asked(models=16), (16, 1, 8, 2)),
        (CPU, Asked(nodes=2, ranks=64), (1, 64, 2, 32)),
    ],
)
def test_defaults_are_those_of_table_2(
    resources: NodeResources, asked: Asked, expected: tuple[int, int, int, int]
) -> None:
    nodes, _ = nodes_of(*[resources] * 8)
    assert sizes(shape(nodes, asked, cluster=True)) == expected


def test_a_machine_with_gpus_is_used_whole() -> None:
    here = sized([replace(H100, name=THIS_MACHINE)], LaunchSettings(), "auto")
    assert sizes(shape(here, Asked(), cluster=False))[:2] == (1, 8)
    assert sizes(shape(here, Asked(models=4), cluster=False))[:2] == (4, 2)
    assert sizes(shape(here, Asked(), cluster=False, workers=True))[:2] == (8, 1)
    assert sizes(shape(here, Asked(), cluster=False, single=True))[:2] == (1, 8)
    cores = sized([replace(CPU, name=THIS_MACHINE)], LaunchSettings(), "auto")
    assert sizes(shape(cores, Asked(), cluster=False))[:2] == (1, 1)


clusters = st.lists(
    st.builds(
        NodeResources,
        name=st.just("n"),
        cores=st.integers(8, 64),
        memory_mb=st.integers(1000, 10**6),
        gpus=st.integers(0, 8),
    ),
    min_size=1,
    max_size=6,
)
wishes = st.builds(
    Asked,
    models=st.none() | st.integers(1, 12),
    ranks=st.none() | st.integers(1, 24),
    nodes=st.none() | st.integers(1, 6),
    scale=st.none() | st.integers(1, 48),
)
overrides = st.fixed_dictionaries(
    {},
    optional={
        "gpus_per_rank": st.integers(0, 4),
        "cores_per_rank": st.integers(1, 16),
        "ranks_per_node": st.integers(1, 8),
    },
)


@given(resources=clusters, asked=wishes, launch=overrides)
def test_what_is_planned_is_what_is_started(
    resources: list[NodeResources], asked: Asked, launch: dict[str, Any]
) -> None:
    """Every rank has the node and the slot of the plan, and no slot has two."""
    nodes, settings = nodes_of(*resources, **launch)
    assume(nodes)  # otherwise the launchers refuse, before a shape is sought
    try:
        chosen = shape(nodes, asked, cluster=True)
        planned = plan(chosen.nodes, chosen.models, chosen.ranks)
        layout = NodeLayout(chosen.ranks, chosen.ranks_per_node)
    except UsageError:
        return
    assert asked.models in (None, chosen.models)
    assert asked.ranks in (None, chosen.ranks)
    order = {node.name: number for number, node in enumerate(chosen.nodes)}
    steps = layout.steps(dict.fromkeys(range(chosen.models), 1))
    free = dict.fromkeys(order.values(), chosen.ranks_per_node)
    for step, placement in zip(steps, planned.placements, strict=True):
        places = [(order[name], len(slots)) for name, slots in placement.places]
        started = [(step.first_node + k, step.tasks_per_node) for k in range(step.nodes)]
        assert places == started
        for node, ranks in started:
            free[node] -= ranks
    assert min(free.values()) >= 0
    share = rank_share(chosen.nodes, chosen.ranks_per_node, settings)
    for each in chosen.nodes:
        assert each.resources is not None
        assert share.cores * chosen.ranks_per_node <= each.resources.cores
        assert share.gpus * chosen.ranks_per_node <= each.resources.gpus
        assert (share.memory_mb or 0) * chosen.ranks_per_node <= (each.resources.memory_mb or 0)


def test_without_a_node_ranks_have_no_share() -> None:
    with pytest.raises(UsageError, match="no node has room for 8 ranks"):
        rank_share([], 8, LaunchSettings())
