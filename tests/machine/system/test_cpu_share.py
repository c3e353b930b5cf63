"""One number of CPU threads for ceilings, training and data, whatever limits it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.micro_tasks import CPU
from tests.support.sample_parts import Vflops
from tests.support.train_runs import SMALL
from vflops.machine.system import cpu_share
from vflops.machine.system.cpu_share import CpuThreads, available_cpus, cpu_threads
from vflops.record.folder import RunFolder, latest
from vflops.record.formats.job_events import JobStarted
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents


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
