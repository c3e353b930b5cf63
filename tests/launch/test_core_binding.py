"""Cores near GPUs and network devices, on machines described by a fake ``/sys``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from vflops.launch.core_binding import BINDING, Topology, bind, spans, variables
from vflops.launch.local.local_launcher import split_cores
from vflops.launch.local.processes import LocalRanks
from vflops.machine.probe import numbers


def machine(
    root: Path,
    nodes: Sequence[str],
    *,
    gpus: Sequence[int] = (),
    hcas: Mapping[str, tuple[int, str]] | None = None,
    siblings: int = 0,
) -> Topology:
    """Write a ``/sys`` of NUMA nodes; thread k + ``siblings`` is on the core of thread k."""

    def write(path: str, text: object) -> None:
        file = root / "sys" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    for number, cores in enumerate(nodes):
        write(f"devices/system/node/node{number}/cpulist", cores)
        for core in numbers(cores) if siblings else ():
            pair = f"{core % siblings},{core % siblings + siblings}"
            write(f"devices/system/cpu/cpu{core}/topology/thread_siblings_list", pair)
    for number, node in enumerate(gpus):
        card = f"bus/pci/devices/0000:{number + 16:02x}:00.0"
        write(f"{card}/class", "0x030200")
        write(f"{card}/vendor", "0x10de")
        write(f"{card}/numa_node", node)
    graphics = "bus/pci/devices/0000:01:00.0"  # on-board graphics, not an accelerator
    write(f"{graphics}/class", "0x030000")
    write(f"{graphics}/vendor", "0x1a03")
    write(f"{graphics}/numa_node", 0)
    for name, (node, state) in (hcas or {}).items():
        write(f"class/infiniband/{name}/device/numa_node", node)
        write(f"class/infiniband/{name}/ports/1/state", state)
    return Topology.read(root)


def cores_of(topology: Topology, cores: range, ranks: int, gpus: Sequence[int] = ()) -> list[str]:
    return [spans(rank.cores) for rank in bind(topology, cores, ranks, gpus)]


def test_a_rank_gets_cores_of_its_gpus_numa_node(tmp_path: Path) -> None:
    two = machine(tmp_path, ["0-7", "8-15"], gpus=[1, 1, 0, 0])
    assert cores_of(two, range(16), 4, [0, 1, 2, 3]) == ["8-11", "12-15", "0-3", "4-7"]
    assert cores_of(two, range(16), 2, [2, 0]) == ["0-7", "8-15"]
    assert [rank.gpu for rank in bind(two, range(16), 2, [2, 0])] == [2, 0]
    # Both near one node: equal shares of it, and the other node stays unused.
    assert cores_of(two, range(16), 2, [0, 1]) == ["8-11", "12-15"]


@pytest.mark.parametrize(
    ("nodes", "ranks", "expected"),
    [
        (["0-3"], 2, ["0-1", "2-3"]),
        (["0-3"], 3, ["0", "1", "2"]),
        (["0-3"], 1, ["0-3"]),
        (["0-5", "6-11"], 4, ["0-2", "3-5", "6-8", "9-11"]),
        (["0-4", "5-9"], 4, ["0-1", "2-3", "5-6", "7-8"]),  # not 4-5, of both nodes
        (["0-3", "4-11"], 3, ["0-3", "4-7", "8-11"]),
        (["0-3", "4-7"], 1, ["0-7"]),  # unavoidable
        (["0-1"], 3, []),
    ],
)
def test_without_gpus_shares_are_equal_and_stay_in_a_node(
    tmp_path: Path, nodes: list[str], ranks: int, expected: list[str]
) -> None:
    cores = range(max(numbers(nodes[-1])) + 1)
    assert cores_of(machine(tmp_path, nodes), cores, ranks) == expected


def test_only_cores_of_the_process_are_assigned(tmp_path: Path) -> None:
    two = machine(tmp_path, ["0-7", "8-15"], gpus=[0, 1])
    assert cores_of(two, range(4, 12), 2, [0, 1]) == ["4-7", "8-11"]
    assert cores_of(two, range(4, 8), 2, [0, 1]) == ["4-5", "6-7"]  # none near the second GPU
    assert cores_of(two, range(16), 2, [0, 7]) == ["0-7", "8-15"]  # no such GPU


def test_threads_of_one_core_go_to_one_rank(tmp_path: Path) -> None:
    one = machine(tmp_path, ["0-7"], siblings=4)
    assert cores_of(one, range(8), 2) == ["0-1,4-5", "2-3,6-7"]
    slots = split_cores(one, range(8), 4)
    assert [spans(slot.cores) for slot in slots] == ["0,4", "1,5", "2,6", "3,7"]
    odd = machine(tmp_path / "odd", ["0-9"], siblings=5)
    assert cores_of(odd, range(10), 2) == ["0-1,5-6", "2-3,7-8"]  # and not a half of core 2 each
    assert cores_of(odd, range(5), 2) == ["0-1", "2-3"]
    assert cores_of(odd, range(10), 10) == ["0", "5", "1", "6", "2", "7", "3", "8", "4", "9"]


def physical_cores_of(topology: Topology, cores: Sequence[int], ranks: int) -> list[set[int]]:
    bound = bind(topology, cores, ranks)
    return [{topology.first_thread[core] for core in rank.cores} for rank in bound]


@pytest.mark.parametrize(
    ("cores", "ranks", "expected"),
    [
        ([0, 1, 5, 2, 6, 3], 2, ["0-1,5", "2-3,6"]),  # not 0-1 and 2,5, which share core 1
        ([0, 1, 5], 2, ["0", "1"]),
        ([0, 1, 5, 2, 6], 2, ["0-1", "2,6"]),  # the second thread of core 1 stays unused
        ([0, 4, 1], 2, ["0", "1"]),
        ([0, 4, 1, 5, 2, 6, 3], 3, ["0,4", "1,5", "2,6"]),
    ],
)
def test_an_affinity_that_cuts_cores_lets_no_ranks_share_one(
    tmp_path: Path, cores: list[int], ranks: int, expected: list[str]
) -> None:
    one = machine(tmp_path, ["0-7"], siblings=4)
    assert [spans(rank.cores) for rank in bind(one, cores, ranks)] == expected
    used = physical_cores_of(one, cores, ranks)
    assert sum(map(len, used)) == len(set.union(*used))


def test_more_ranks_than_physical_cores_share_them(tmp_path: Path) -> None:
    one = machine(tmp_path, ["0-7"], siblings=4)
    assert physical_cores_of(one, range(8), 4) == [{0}, {1}, {2}, {3}]
    assert physical_cores_of(one, range(8), 5) == [{0}, {0}, {1}, {1}, {2}]
    assert physical_cores_of(one, [0, 1, 5], 3) == [{0}, {1}, {1}]
    assert bind(one, [0, 1, 5], 4) == []


def test_local_slots_are_near_their_devices(tmp_path: Path) -> None:
    two = machine(tmp_path, ["0-4", "5-9"], gpus=[1, 0])
    slots = split_cores(two, range(10), 2, devices=["0", "1"], gpus=[0, 1])
    assert [(spans(slot.cores), slot.device) for slot in slots] == [("5-9", "0"), ("0-4", "1")]
    (only,) = split_cores(two, range(10), 1, devices=["1"], gpus=[1])
    assert (spans(only.cores), only.device) == ("0-4", "1")
    requested = split_cores(two, range(10), 5, cores_per_slot=2)
    assert [spans(slot.cores) for slot in requested] == ["0-1", "2-3", "4-5", "6-7", "8-9"]


_HCAS = {
    "mlx5_0": (0, "4: ACTIVE"),
    "mlx5_1": (1, "4: ACTIVE"),
    "mlx5_2": (1, "1: DOWN"),
}


def test_network_devices_near_the_gpus_are_set_unless_the_user_set_them(tmp_path: Path) -> None:
    two = machine(tmp_path, ["0-7", "8-15"], gpus=[0, 1], hcas=_HCAS)
    environment, words = variables(two, range(16), 1, {"CUDA_VISIBLE_DEVICES": "1"})
    assert environment == {BINDING: "8-15", "NCCL_IB_HCA": "=mlx5_1"}
    assert "rank 0 of this node: cores 8-15 of NUMA node 1, GPU 1; NCCL_IB_HCA==mlx5_1" in words
    # SLURM's given number of a card that CUDA calls 0 inside of the step.
    renumbered = {"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "1"}
    assert variables(two, range(16), 1, renumbered)[0][BINDING] == "8-15"
    both, _ = variables(two, range(16), 2, {"CUDA_VISIBLE_DEVICES": "0,1"})
    assert both == {BINDING: "0-7;8-15", "NCCL_IB_HCA": "=mlx5_0,mlx5_1"}
    given = {"CUDA_VISIBLE_DEVICES": "1", "NCCL_IB_HCA": "mlx5_9"}
    assert variables(two, range(16), 1, given)[0] == {BINDING: "8-15"}
    assert "NCCL_IB_HCA" not in variables(two, range(16), 2, {})[0]  # no GPUs


def test_a_step_that_slurm_does_not_bind_is_not_bound(tmp_path: Path) -> None:
    one = machine(tmp_path, ["0-7"])
    environment, words = variables(one, range(8), 1, {"SLURM_CPUS_PER_TASK": "2"})
    assert environment == {} and "lets this step of 2 cores use all 8" in words
    assert variables(one, range(2), 1, {"SLURM_CPUS_PER_TASK": "1"})[0] == {BINDING: "0-1"}
    assert variables(one, range(8), 2, {"SLURM_CPUS_PER_TASK": "8"})[0] == {BINDING: "0-3;4-7"}
    assert variables(one, range(2), 3, {})[0] == {}


def test_a_machine_without_numa_information_has_one_node(tmp_path: Path) -> None:
    assert list(Topology.read(tmp_path).nodes) == [0]


def test_ranks_run_on_the_cores_they_are_bound_to(tmp_path: Path) -> None:
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        pytest.skip("one core cannot be shared")
    look = "import os, time; time.sleep(0.2); print(sorted(os.sched_getaffinity(0)))"
    binding = {BINDING: f"{usable[1]};{usable[0]}"}
    ranks = LocalRanks([sys.executable, "-S", "-c", look], 2, tmp_path, binding)
    while ranks.running():
        pass
    printed = [(tmp_path / f"rank-{rank}.log").read_text().strip() for rank in (0, 1)]
    assert printed == [f"[{usable[1]}]", f"[{usable[0]}]"]
