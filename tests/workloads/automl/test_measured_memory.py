"""The memory of a step: measured once on an accelerator, linear in the batch, shared by all."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.automl_parts import DATA, settings
from vflops.train import out_of_memory
from vflops.train.backends.torch_backend import TorchBackend
from vflops.train.parallel.factory import SingleRank
from vflops.train.precision import Precision
from vflops.workloads.automl import measured_memory
from vflops.workloads.automl.architecture import architecture_cost
from vflops.workloads.automl.architecture.module_builder import build
from vflops.workloads.automl.architecture.step_memory import StepMemory
from vflops.workloads.automl.candidate import CandidateTraining
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.proposer import first_network
from vflops.workloads.automl.settings import PROFILES, AutomlSettings

GIB = 1 << 30


def context(chosen: AutomlSettings, ranks: int = 1) -> Any:
    record = SimpleNamespace(settings=chosen.model_dump(mode="json"), data=DATA, ranks=ranks)
    return SimpleNamespace(record=record, local_rank=0)


def test_on_a_cpu_the_memory_is_the_sum_of_what_a_step_keeps() -> None:
    chosen = settings()
    found = measured_memory.step_memory(context(chosen), 3, GIB)
    assert found == StepMemory(worker=3, usable_bytes=GIB)
    network = first_network(chosen, DATA)
    needed = architecture_cost.memory_bytes(network, 32, 4)
    exact = found.model_copy(update={"usable_bytes": needed})
    assert exact.fits(network, 32, 4) and not exact.fits(network, 33, 4)


@pytest.mark.parametrize("ranks", [1, 8])
def test_measured_steps_say_the_memory_of_any_batch(
    monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    """With 1.5 times the sum for a sample, and a workspace of 100,000 bytes."""
    chosen = settings()
    network = first_network(chosen, DATA)
    sample = 3 * architecture_cost.activation_bytes(network, 1) // 2
    weights = architecture_cost.parameter_bytes(network)

    def peak(batch: int) -> int:
        return weights + 100_000 + batch * sample

    monkeypatch.setattr(measured_memory, "rank_device", lambda *_: torch.device("meta"))
    monkeypatch.setattr(measured_memory, "_peaks", lambda *_: (peak(32), peak(64)))
    monkeypatch.setattr(torch.accelerator, "empty_cache", lambda: None, raising=False)
    exchanged = 4 * network.parameters * (ranks > 1)
    found = measured_memory.step_memory(context(chosen, ranks), 0, peak(448) + exchanged)
    assert found.measured
    assert found.factor == pytest.approx(1.5, rel=1e-3)
    assert found.fits(network, 447, 4) and not found.fits(network, 449, 4)
    monkeypatch.setattr(measured_memory, "_peaks", lambda *_: None)  # not even small steps fit
    assert not measured_memory.step_memory(context(chosen), 0, GIB).measured


def test_all_workers_propose_by_the_memory_of_the_first(tmp_path: Path) -> None:
    first, second = (StepMemory(worker=n, usable_bytes=GIB + n, factor=1 + n) for n in (0, 1))
    assert CandidateBuffer(tmp_path).step_memory() is None
    CandidateBuffer(tmp_path).share_memory(first)
    CandidateBuffer(tmp_path).share_memory(second)
    assert CandidateBuffer(tmp_path).step_memory() == first


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("batch", [128, 256])
def test_two_small_steps_predict_the_peak_of_a_large_one(batch: int) -> None:
    chosen = PROFILES["gpu"]()
    device = torch.device("cuda", 0)
    found = measured_memory.step_memory(context(chosen), 0, 64 * GIB)
    assert found.measured
    network = first_network(chosen, DATA)
    train = chosen.train.model_copy(update={"compile": "record", "batch": batch})
    alone = chosen.model_copy(update={"train": train})
    workload = CandidateTraining(alone, DATA, build(network), network)
    precision = Precision.named(train.precision, device)
    before = torch.accelerator.memory_allocated(device)
    backend = TorchBackend(train, workload, SingleRank(), precision, device, seed=1)
    peak = out_of_memory.peak_bytes(backend.take_step, workload, device, batch)
    assert peak is not None
    per_value = 4 if train.precision in ("fp32", "tf32") else 2
    predicted = found.model_copy(update={"usable_bytes": int(1.1 * (peak - before))})
    assert predicted.fits(network, batch, per_value)
    less = found.model_copy(update={"usable_bytes": int(0.9 * (peak - before))})
    assert not less.fits(network, batch, per_value)
