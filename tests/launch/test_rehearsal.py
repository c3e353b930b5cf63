"""Layouts that are rehearsed: placed as on the real nodes, on what this machine has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch.job_script import Request
from vflops.launch.local.local_launcher import LocalLauncher
from vflops.launch.node_layout import NodeLayout
from vflops.launch.placement import Node, NodeResources, plan
from vflops.launch.rehearsal import SharedMachine, rehearsal_variables
from vflops.launch.site import SiteSettings
from vflops.launch.sizing import Asked, RankShare, Shape, rank_share, shape, sized
from vflops.launch.slurm.sbatch_script import allocation_script

GPU = NodeResources("g", cores=16, memory_mb=100_000, gpus=1, gpu_type="h200")
LAPTOP = NodeResources("l", cores=2, memory_mb=8_000)


def rehearsed(resources: NodeResources, nodes: int, **launch: Any) -> list[Node]:
    settings = LaunchSettings(rehearse=True, nodes=nodes, **launch)
    named = [replace(resources, name=f"node {number}") for number in range(1, nodes + 1)]
    return sized(named, settings, "auto")


def shaped(resources: NodeResources, asked: Asked, **launch: Any) -> Shape:
    return shape(rehearsed(resources, asked.nodes or 1, **launch), asked, cluster=True)


@pytest.mark.parametrize("resources", [GPU, LAPTOP])
@pytest.mark.parametrize(
    ("asked", "layout"),
    [
        (Asked(nodes=1, ranks=8), (1, 8, 8)),
        (Asked(nodes=8, ranks=8), (8, 8, 8)),
        (Asked(nodes=64, ranks=8), (64, 8, 8)),
        (Asked(nodes=2, ranks=2, models=4), (4, 2, 4)),
        (Asked(nodes=2, ranks=2, models=3), (3, 2, 4)),
        (Asked(nodes=4, ranks=16, models=2), (2, 16, 8)),
        (Asked(nodes=1, models=4), (4, 1, 4)),
        (Asked(nodes=8, scale=64), (8, 8, 8)),
        (Asked(nodes=8, scale=64, ranks=4), (16, 4, 8)),
    ],
)
def test_a_node_takes_as_many_ranks_as_the_real_layout_has_on_it(
    resources: NodeResources, asked: Asked, layout: tuple[int, int, int]
) -> None:
    found = shaped(resources, asked)
    assert (found.models, found.ranks, found.nodes[0].slots) == layout


@given(
    st.sampled_from((GPU, LAPTOP)),
    st.integers(1, 16),
    st.integers(1, 16),
    st.none() | st.integers(1, 32),
    st.none() | st.integers(1, 32),
)
def test_a_rehearsal_is_placed_as_the_layout_that_it_stands_for(
    resources: NodeResources, nodes: int, slots: int, models: int | None, ranks: int | None
) -> None:
    asked = Asked(models, ranks, nodes)
    resources_there = (
        NodeResources(f"node {number}", cores=96, gpus=slots) for number in range(1, nodes + 1)
    )
    real = sized([*resources_there], LaunchSettings(nodes=nodes, ranks_per_node=slots), "auto")
    try:
        wanted = shape(real, asked, cluster=True)
        placed = plan(wanted.nodes, wanted.models, wanted.ranks).placements
    except UsageError:
        return
    found = shaped(resources, asked, ranks_per_node=slots)
    assert (found.models, found.ranks) == (wanted.models, wanted.ranks)
    assert plan(found.nodes, found.models, found.ranks).placements == placed


def test_the_ranks_of_a_node_share_all_that_it_has() -> None:
    (node,) = rehearsed(GPU, 1, ranks_per_node=32)
    assert rank_share([node], 32, LaunchSettings(rehearse=True)) == RankShare(16, 1, "h200", 95_000)


def test_several_nodes_of_this_machine_are_a_rehearsal_only() -> None:
    with pytest.raises(UsageError, match="jobs run on this machine") as error:
        LocalLauncher.check(LaunchSettings(nodes=8))
    assert "--rehearse" in (error.value.hint or "")
    LocalLauncher.check(LaunchSettings(nodes=8, rehearse=True))
    nodes = LocalLauncher.nodes(LaunchSettings(nodes=3, rehearse=True, ranks_per_node=5), "cpu")
    assert [(node.name, node.slots) for node in nodes] == [
        ("node 1", 5),
        ("node 2", 5),
        ("node 3", 5),
    ]


@pytest.mark.parametrize(
    ("devices", "here", "world", "given", "set_"),
    [
        (1, 2, 2, {}, {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}),
        (1, 2, 8, {}, {}),  # the other ranks are on other machines
        (
            1,
            2,
            2,
            {"NCCL_SOCKET_IFNAME": "eth1", "NCCL_IB_DISABLE": "0"},
            {"NCCL_SOCKET_IFNAME": "eth1", "NCCL_IB_DISABLE": "0"},
        ),
    ],
)
def test_nccl_takes_ranks_that_share_an_accelerator_for_ranks_of_several_hosts(
    devices: int, here: int, world: int, given: dict[str, str], set_: dict[str, str]
) -> None:
    hosts = set()
    for rank in range(here):
        environment = {"RANK": f"{rank}", "WORLD_SIZE": f"{world}", **given}
        SharedMachine(here, here).prepare_nccl(devices, environment)
        hosts.add(environment.pop("NCCL_HOSTID"))
        assert environment == {"RANK": f"{rank}", "WORLD_SIZE": f"{world}", **set_}
    assert len(hosts) == here


def test_ranks_with_accelerators_of_their_own_use_nccl_as_always() -> None:
    environment = {"RANK": "1", "WORLD_SIZE": "2"}
    SharedMachine(2, 2).prepare_nccl(2, environment)
    assert environment == {"RANK": "1", "WORLD_SIZE": "2"}


def test_ranks_are_told_the_size_of_the_nodes_that_they_act_out() -> None:
    launch = LaunchSettings(rehearse=True, nodes=2, ranks_per_node=4)
    variables = rehearsal_variables(launch, 512, alone=True)
    assert variables["VFLOPS_REHEARSED_NODE"] == "4"
    assert variables["OMP_NUM_THREADS"] == "1"
    assert SharedMachine.of(variables) == SharedMachine(512, 512)
    variables = rehearsal_variables(launch, 2, alone=True)
    assert SharedMachine.of(variables) == SharedMachine(2, 4)
    assert SharedMachine.of({}) is None


def test_the_steps_of_a_slurm_rehearsal_share_all_that_their_nodes_have(tmp_path: Path) -> None:
    request = Request(
        name="r",
        script=tmp_path / "a.sh",
        nodes=2,
        tasks_per_node=1,
        cores_per_task=16,
        gpus_per_task=1,
        output=tmp_path / "a.log",
        site=SiteSettings(),
        overlap=True,
    )
    steps = NodeLayout(4, 8).steps(dict.fromkeys(range(1, 5), 1))
    assert [(step.first_node, step.tasks_per_node) for step in steps] == [
        (0, 4),
        (0, 4),
        (1, 4),
        (1, 4),
    ]
    words = allocation_script(request, tmp_path, steps).replace("\\\n", " ").split()
    assert "--overlap" in words
    assert "--cpus-per-task=$((1" in words
    assert "--gres=gpu:$((1" in words
    assert {"--ntasks-per-node=1", "--cpus-per-task=16", "--gres=gpu:1"} <= set(words)
