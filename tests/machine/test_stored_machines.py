"""What a run chooses on the stored machines: cores, threads, memory; and its telemetry."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.stored_machines import LAUNCHER, Machine
from tests.support.telemetry_fakes import FakeNvml
from vflops.launch.core_binding import Topology, bind
from vflops.machine import host
from vflops.machine.ceilings.memory_bandwidth import array_sizes
from vflops.machine.devices import Device, rank_capacity
from vflops.machine.telemetry.sampling import Sampler
from vflops.record.log.telemetry_log import read
from vflops.train.rank_device import use_threads

CPU = Device(torch.device("cpu"))


@pytest.fixture
def here(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Each stored machine, as the machine that this process runs on."""
    machine.become(monkeypatch)
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_CPUS_PER_TASK", "VFLOPS_BINDING"):
        monkeypatch.delenv(name, raising=False)
    return machine


def test_cores_and_their_quota(here: Machine) -> None:
    assert host.usable_cores() == list(here.cores)
    assert host.usable_cpus() == here.usable_cpus
    assert rank_capacity("cpu") == (here.usable_cpus, False)


def test_the_last_level_cache(here: Machine) -> None:
    assert host.last_level_cache_bytes() == here.last_level_cache_bytes
    assert CPU.cache_bytes() > 0


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_ranks_have_equal_and_separate_cores(here: Machine, ranks: int) -> None:
    topology = Topology.read(here.root)
    bound = bind(topology, here.cores, ranks, range(here.gpus))
    if len(here.cores) < ranks:
        assert bound == []
        return
    assert len(bound) == ranks
    assert len({len(rank.cores) for rank in bound}) == 1
    assigned = [core for rank in bound for core in rank.cores]
    assert len(set(assigned)) == len(assigned) > len(here.cores) * 3 // 4 or here.gpus
    assert set(assigned) <= set(here.cores)
    if ranks <= len(topology.nodes) and not here.gpus:
        return
    for rank in bound:
        near = topology.near(rank.gpu)
        assert near is None or rank.nodes == (near,)


def test_ranks_of_the_256_cores_have_numa_nodes_and_cores_of_their_own(here: Machine) -> None:
    if here.name != "cores-256":
        pytest.skip("a fact about another machine")


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_threads_of_all_ranks_fit_the_quota(
    here: Machine, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    assert use_threads(CPU.torch_device, ranks) == max(here.usable_cpus // ranks, 1)


@pytest.mark.parametrize("torch_threads", [1, 2, 128])
def test_ceilings_use_no_more_threads_than_can_run(
    here: Machine, torch_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: torch_threads)
    most, *fewer = CPU.thread_counts()
    assert most == min(torch_threads, here.usable_cpus)
    assert fewer == ([most - 1] if most > 1 else [])


def test_arrays_exceed_the_cache_and_fit_into_the_memory(here: Machine) -> None:
    free = host.free_memory_bytes()
    sizes, caveat = array_sizes(CPU)
    assert sizes and all(0 < 3 * size <= free for size in sizes)
    assert caveat is not None or min(sizes) >= 4 * CPU.cache_bytes()
    assert (caveat is not None) == (here.name in ("cores-256", "container-with-limits"))
