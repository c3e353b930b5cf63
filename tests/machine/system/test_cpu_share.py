"""One number of CPU threads for ceilings, training and data, whatever limits it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.data_images import image_folder
from tests.support.micro_tasks import CPU
from tests.support.sample_parts import Vflops
from tests.support.train_runs import SMALL
from vflops.data.images import pack_images
from vflops.data.process_pool import default_workers
from vflops.errors import RunFailed
from vflops.launch.core_binding import BINDING
from vflops.machine.system import cpu_share
from vflops.machine.system.cpu_share import (
    CpuThreads,
    available_cpus,
    cpu_threads,
    pool_processes,
)
from vflops.record.folder import RunFolder, latest
from vflops.record.formats.job_events import JobStarted
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.train import engine
from vflops.workloads.automl import compile_ahead, worker
from vflops.workloads.command.environment import threads_per_rank


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_share, "usable_cores", lambda: list(range(8)))
    monkeypatch.setattr(cpu_share, "_quota", lambda: None)
    for variable in ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize(("ranks", "count"), [(1, 8), (2, 4), (3, 2), (8, 1), (20, 1)])
def test_ranks_share_the_cores_equally(ranks: int, count: int) -> None:
    assert cpu_threads(ranks) == CpuThreads(count, "affinity")


def test_a_bound_rank_has_all_of_its_cores() -> None:
    assert cpu_threads(2, bound=True) == CpuThreads(8, "affinity")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1", CpuThreads(1, "OMP_NUM_THREADS")),
        ("3,2", CpuThreads(3, "OMP_NUM_THREADS")),
        ("64", CpuThreads(8, "affinity")),
        ("", CpuThreads(8, "affinity")),
        ("0", CpuThreads(8, "affinity")),
        ("many", CpuThreads(8, "affinity")),
    ],
)
def test_the_openmp_variable_limits_every_process(
    value: str, expected: CpuThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert cpu_threads() == cpu_threads(bound=True) == expected
    assert CPU.thread_counts()[0] == expected.count
    assert cpu_threads(8).count == 1
    assert available_cpus() == 8


def test_every_part_that_computes_respects_the_openmp_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv(BINDING, raising=False)
    used: list[int] = []
    monkeypatch.setattr("torch.set_num_threads", used.append)
    for part in (engine, worker, compile_ahead):
        part.use_threads(torch.device("cpu"), 1)
    assert used == [3, 3, 3]
    context: Any = SimpleNamespace(record=SimpleNamespace(ranks=2), local_ranks=2)
    assert threads_per_rank(context) == 3
    assert CPU.thread_counts()[0] == 3  # of the ceilings
    assert default_workers(1000, small=10) == pool_processes() == 3


def test_images_are_packed_by_no_more_processes_than_the_openmp_variable_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    asked: list[int] = []

    def make_shards(*_: object, workers: int, **__: object) -> None:
        asked.append(workers)
        raise RunFailed("seen")

    monkeypatch.setattr(pack_images, "make_shards", make_shards)
    source = image_folder(tmp_path / "images")
    with pytest.raises(RunFailed, match="seen"):
        pack_images.pack(source, tmp_path / "packed", short_side=8)
    assert asked == [2]


def test_the_strictest_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "6")
    assert cpu_threads() == CpuThreads(6, "SLURM_CPUS_PER_TASK")
    monkeypatch.setattr(cpu_share, "_quota", lambda: 4)
    assert cpu_threads(2) == CpuThreads(2, "cgroup quota")
    assert available_cpus() == 4


def test_a_cpu_is_also_measured_with_one_thread_fewer_and_one_per_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_share, "physical_cores", lambda: 4)
    assert CPU.thread_counts() == [8, 7, 4]
    monkeypatch.setattr(cpu_share, "physical_cores", lambda: 8)
    assert CPU.thread_counts() == [8, 7]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert CPU.thread_counts() == [1]


def test_ceilings_and_training_record_the_threads_that_the_user_allows(
    vflops_alone: Vflops, tmp_path: Path
) -> None:
    ceilings = ('micro.benchmarks=["gemm"]', 'micro.precisions=["fp32"]', "micro.budget_s=1")
    settings = [part for item in (*SMALL, *ceilings) for part in ("--set", item)]
    words = ("run", "image-classification", "--profile", "tiny", "--set", "train.device=cpu")
    done = vflops_alone(*words, *settings, "--set", "micro.device=cpu", OMP_NUM_THREADS="1")
    assert done.returncode in (0, 1), done.stderr  # so short a training may miss its target
    path = latest(tmp_path / "runs")
    assert path is not None
    folder = RunFolder.open(path)
    (fact,) = SystemRecord.read(folder.system_file).matching("framework", "torch threads")
    assert (fact.value, fact.source) in ((1, "OMP_NUM_THREADS"), (1, "affinity"))
    (measurement,) = Contents(folder).measurements
    assert measurement.value is not None, measurement.reason
    assert measurement.threads == measurement.setting["threads"] == 1
    assert {trial.setting["threads"] for trial in measurement.tried} == {1}
    started = folder.history().events("job", job=1)
    assert [event.payload(JobStarted).threads for event in started] == [1]
