"""The batch that would fit, found on a device whose memory is made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vflops.train import out_of_memory
from vflops.train.backends.torch_backend import TorchBackend


class Accelerator:
    """10 MB of weights and 3 MB a sample in ``total`` MB."""

    def __init__(self, total_mb: int) -> None:
        self.total_mb = total_mb
        self.peak_mb = 0
        self.tried: list[int] = []

    def step(self, size: int) -> None:
        self.tried.append(size)
        self.peak_mb = 10 + 3 * size
        if self.peak_mb > self.total_mb:
            raise torch.OutOfMemoryError("no more")


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Accelerator:
    made = Accelerator(total_mb=350)
    fake: dict[str, Any] = {
        "empty_cache": lambda: None,
        "reset_peak_memory_stats": lambda device: None,
        "synchronize": lambda device: None,
        "max_memory_allocated": lambda device: made.peak_mb << 20,
        "get_memory_info": lambda device: (0, made.total_mb << 20),
    }
    for name, function in fake.items():
        monkeypatch.setattr(torch.accelerator, name, function, raising=False)
    monkeypatch.setattr(out_of_memory, "_zero_inputs", lambda workload, device, size: size)
    return made


class Step:
    """As much of a step as a trial needs."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.optimizer = self
        self._accelerator = accelerator

    def zero_grad(self, set_to_none: bool) -> None:
        pass

    def __call__(self, parts: list[int], rate: float) -> None:
        self._accelerator.step(parts[0])


def fitting(accelerator: Accelerator, batch: int) -> int | None:
    step: Any = Step(accelerator)
    workload: Any = None
    return out_of_memory.fitting_batch(step, workload, torch.device("cpu"), batch)


def test_the_line_through_two_sizes_that_fit_gives_the_largest(accelerator: Accelerator) -> None:
    """10 + 3·b ≤ 95 % of 350: 107, in steps of 8."""
    assert fitting(accelerator, 256) == 104
    assert accelerator.tried == [128, 64, 32]


def test_what_fits_is_less_than_what_did_not(accelerator: Accelerator) -> None:
    accelerator.total_mb = 10_000
    assert fitting(accelerator, 128) == 120


def test_a_rank_of_several_tries_no_step_alone() -> None:
    """The others would wait for its messages, and it for theirs."""
    backend: Any = TorchBackend.__new__(TorchBackend)
    backend._plan, backend.device = SimpleNamespace(ranks=2), torch.device("cuda:0")
    assert backend.fitting_batch(64) is None


def test_weights_alone_may_be_too_much(accelerator: Accelerator) -> None:
    accelerator.total_mb = 5
    assert fitting(accelerator, 64) is None
