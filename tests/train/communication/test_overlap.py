"""Buckets of gradients are averaged while the backward pass still computes others.

One rank over gloo shows it: a step calls the same hooks in the same order for any number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from vflops.config.parallel import CommunicationSettings
from vflops.models.fused_resnet import FusedResNet
from vflops.models.fused_step import TrunkStep
from vflops.models.fused_trunk import FusedTrunk
from vflops.train.communication.exchange import CodedExchange, Exchange, PlainExchange
from vflops.train.objective import Objective
from vflops.train.parallel import data_parallel
from vflops.train.parallel.data_parallel import DataParallel
from vflops.train.precision import Precision
from vflops.workloads.contract.workload import Workload

CPU = torch.device("cpu")
LAYERS = 8
REDUCED = "reduced"


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was launched: numbers of layers or parts whose gradients exist, and averages."""
    launched: list[Any] = []
    for kind in (PlainExchange, CodedExchange):
        hook = kind.hook

        def noting(self: Exchange, bucket: Any, hook: Any = hook) -> Any:
            launched.append(REDUCED)
            return hook(self, bucket)

        monkeypatch.setattr(kind, "hook", noting)
    monkeypatch.setattr(data_parallel, "_BUCKET_MB", 1e-6)
    return launched


@pytest.fixture(params=["fp32", "int8"])
def plan(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[DataParallel]:
    settings = CommunicationSettings(precision=request.param)
    plan = DataParallel(0, 1, CPU, f"file://{tmp_path / 'store'}", settings)
    yield plan
    plan.close()


def step(plan: DataParallel, model: nn.Module, batch: Tensor, order: list[Any]) -> list[Any]:
    """Return what the second step launches; DDP forms its buckets in the first."""
    workload = SimpleNamespace(model_inputs=1, loss=lambda outputs, inputs: outputs.mean())
    objective = Objective(model, cast(Workload, workload), Precision.named("fp32", CPU))
    wrapped = plan.wrap(objective)
    for _ in range(2):
        order.clear()
        plan.backward(wrapped, [(batch,)], lambda loss: loss)
    return order


def test_layers_are_averaged_while_earlier_ones_are_computed(
    plan: DataParallel, order: list[Any]
) -> None:
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(LAYERS)))
    for number, layer in enumerate(model):
        cast(nn.Linear, layer).weight.register_hook(lambda _, number=number: order.append(number))
    launched = step(plan, model, torch.randn(2, 64), order)
    assert [item for item in launched if item != REDUCED] == list(reversed(range(LAYERS)))
    assert launched.count(REDUCED) >= LAYERS // 2
    assert launched.index(REDUCED) <= 3  # after the gradients of two or three layers
    assert launched[launched.index(0) :].count(REDUCED) <= 2


def test_parts_of_a_fused_network_are_averaged_while_earlier_ones_are_computed(
    plan: DataParallel, order: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernels need a GPU: the gradients of a part are zeros here, in the order of its nodes."""

    def backward_part(self: TrunkStep, part: int) -> None:
        order.append(part)
        parameters = [p for layer in self.trunk.parts[part] for p in layer.parameters]
        self.gradients.update({parameter: torch.zeros_like(parameter) for parameter in parameters})

    nothing = lambda self, *given: None  # noqa: E731
    features = lambda self: torch.zeros(2, 256)  # noqa: E731
    monkeypatch.setattr(TrunkStep, "backward_part", backward_part)
    monkeypatch.setattr(TrunkStep, "forward_part", nothing)
    monkeypatch.setattr(TrunkStep, "begin_backward", nothing)
    monkeypatch.setattr(TrunkStep, "features", features)
    monkeypatch.setattr(FusedTrunk, "_compile_kernels", nothing)
    monkeypatch.setattr(FusedResNet, "fuses", lambda self, x: True)
    model = FusedResNet((3,), classes=10, dtype=torch.float32)
    launched = step(plan, model, torch.randn(2, 3, 32, 32), order)
    parts = [item for item in launched if item != REDUCED]
    assert parts == list(reversed(range(len(parts)))) and len(parts) >= 4
    assert launched.index(REDUCED) < launched.index(len(parts) - 3)
    assert launched[launched.index(0) :].count(REDUCED) <= 2
