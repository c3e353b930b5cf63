"""What a run chooses on the stored machines: cores, threads, memory; and its telemetry."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.support.stored_machines import LAUNCHER, Machine
from tests.support.telemetry_fakes import FakeNvml
from vflops.config.profiles import tiny
from vflops.launch import node_description
from vflops.launch.core_binding import Topology, bind, spans
from vflops.launch.node_group import NodeGroup
from vflops.launch.sizing import this_machine
from vflops.machine import host
from vflops.machine.ceilings.memory_bandwidth import array_sizes
from vflops.machine.devices import Device
from vflops.machine.system import cpu_share
from vflops.machine.system.gather import gather
from vflops.machine.telemetry.sampling import Sampler
from vflops.record.folder import RunFolder
from vflops.record.formats.node import node_records
from vflops.record.formats.system import SystemRecord
from vflops.record.log.telemetry_log import read
from vflops.results.check.device_rules import is_same_product
from vflops.train import out_of_memory
from vflops.train.rank_device import use_threads

CPU = Device(torch.device("cpu"))


@pytest.fixture
def here(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Each stored machine, as the machine that this process runs on."""
    machine.become(monkeypatch)
    used = SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=256 * 2**20))
    monkeypatch.setattr("psutil.Process", lambda: used)  # not that of the test process
    for name in (
        "CUDA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS",
        "SLURM_CPUS_PER_TASK",
        "VFLOPS_BINDING",
    ):
        monkeypatch.delenv(name, raising=False)
    return machine


def test_cores_and_their_quota(here: Machine) -> None:
    assert cpu_share.usable_cores() == list(here.cores)
    assert cpu_share.available_cpus() == here.usable_cpus
    assert this_machine("cpu").cores == here.usable_cpus


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
    assert len(set(assigned)) == len(assigned)
    assert set(assigned) <= set(here.cores)
    if not here.gpus:  # otherwise cores far from the GPUs stay unused
        assert len(here.cores) - len(assigned) <= 2 * len(topology.nodes)
    for rank in bound:
        near = topology.near(rank.gpu)
        assert near is None or rank.nodes == (near,)
        if ranks >= len(topology.nodes):
            assert len(rank.nodes) == 1


@pytest.mark.parametrize(
    ("machine", "ranks", "cores"),
    [
        # The last NUMA node has two CPUs fewer, so that every rank leaves two of its node unused.
        ("cores-256", 8, ["0-14,128-142", "16-30,144-158", "112-126,240-254"]),
        ("cores-256", 2, ["0-62,128-190", "64-126,192-254"]),  # a socket each
        ("four-sockets", 8, ["0,4,8,12,16,20,24,28", "32,36,40,44,48,52,56,60"]),
        ("container-without-sys", 2, ["4-5", "6-7"]),
        ("wsl", 8, ["0-1", "2-3", "14-15"]),
        ("eight-gpus", 8, ["0-3,32-35", "4-7,36-39", "28-31,60-63"]),
    ],
    indirect=["machine"],
)
def test_cores_of_the_first_two_and_the_last_rank(
    here: Machine, ranks: int, cores: list[str]
) -> None:
    bound = bind(Topology.read(here.root), here.cores, ranks, range(here.gpus))
    assert [spans(bound[rank].cores) for rank in (0, 1, -1)][: len(cores)] == cores


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_threads_of_all_ranks_fit_the_quota(
    here: Machine, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    assert use_threads(CPU.torch_device, ranks) == max(here.usable_cpus // ranks, 1)


@pytest.mark.parametrize(
    ("machine", "threads"), [("container-with-limits", 1), ("wsl", 16)], indirect=["machine"]
)
def test_a_rank_that_is_bound_uses_all_its_cores_but_no_more_than_its_share_of_a_quota(
    here: Machine, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VFLOPS_BINDING", "0-15;16-31")
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    assert use_threads(CPU.torch_device, ranks=2) == threads


@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_ceilings_use_no_more_threads_than_can_run(
    here: Machine, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", str(limit))
    most, *fewer = (count or 0 for count in CPU.thread_counts())
    assert most == min(limit, here.usable_cpus)
    assert (most - 1 in fewer) == (most > 1)
    assert all(0 < count < most for count in fewer)


def test_arrays_exceed_the_cache_and_fit_into_the_memory(here: Machine) -> None:
    free = host.free_memory_bytes()
    sizes, caveat = array_sizes(CPU)
    assert sizes and all(0 < 3 * size <= free for size in sizes)
    assert caveat is not None or min(sizes) >= 4 * CPU.cache_bytes()
    assert (caveat is not None) == (here.name == "container-with-limits")


SERIES: dict[str, dict[str, float]] = {
    "arm-server": {"net.enP5p1s0f0.received": 123456, "disk.read": 720 * 512},
    "four-sockets": {"package3.energy": 4.0, "package3.memory_energy": 5.0},
    "eight-gpus": {"gpu7.power": 79.007, "rdma.mlx5_7:1.sent": 4 * 14000},
    "container-with-limits": {"net.eth0.sent": 20},
    "no-avx": {"memory.used": 1024 * (12288000 - 4000000 - 288000 - 4000000)},
}


def test_telemetry(here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(f"{index:04x}" for index in range(here.gpus))
    monkeypatch.setitem(sys.modules, "pynvml", nvml if here.gpus else None)
    file = tmp_path / "telemetry.jsonl"
    with Sampler(file, tmp_path, interval_s=60, pid=LAUNCHER, root=here.root) as sampler:
        pass
    recorded = read(file)
    assert sampler.fault is None and recorded.faults == ()
    columns = {series.id: recorded.column(series.id) for series in recorded.header.series}
    assert all(value is None or value >= 0 for values in columns.values() for value in values)
    assert not [item for item in recorded.header.absent if "Error" in item.reason]
    for name, value in SERIES.get(here.name, {}).items():
        assert columns[name][0] == pytest.approx(value)
    assert ("cpu.run" in columns) == (here.name != "empty-fields")
    assert columns["disk.run_written"] == [8192, 8192]


def test_a_node_describes_itself(
    here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described_by = partial(gather, root=here.root, environ=here.environ)
    monkeypatch.setattr(node_description, "gather", described_by)
    folder = RunFolder.create(tmp_path, "image-classification", tiny())
    attempt = folder.attempt_folder(1, folder.claim_attempt(1))
    node_description.describe_node(folder, attempt, NodeGroup())
    (record,) = node_records(attempt)
    assert record.machine.startswith("8 × NVIDIA H200, " if here.gpus else "")
    assert f"{len(here.cores)} CPUs" in record.machine
    assert "None" not in record.machine


def test_a_training_on_the_processor_is_on_the_described_processor(
    here: Machine, described: SystemRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(out_of_memory, "Path", lambda path: here.root)
    recorded = out_of_memory.device_name(CPU.torch_device)
    for fact in described.matching("hardware", "cpu model"):
        assert fact.value is None or is_same_product(recorded, str(fact.value))
