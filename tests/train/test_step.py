"""A step that is recorded and replayed trains as one that is launched each time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from vflops.models.resnet import ResNet
from vflops.train.optimizers import build, parameter_groups
from vflops.train.parallel.factory import SingleRank
from vflops.train.step import RecordedPrediction, RecordedStep, Recorder, Step
from vflops.workloads.contract.workload import Inputs


class Loss(nn.Module):
    """A model with cross entropy."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.model(images), labels)


def made(device: str, dtype: torch.dtype = torch.float32) -> Step:
    torch.manual_seed(1)
    layout: Any = {"memory_format": torch.channels_last}
    model = ResNet((1, 1, 1, 1), classes=10, width=8).to(device, dtype).to(**layout)
    optimizer = build("sgd", parameter_groups(model, 1e-4), learning_rate=0.1)
    return Step(Loss(model), optimizer, torch.amp.GradScaler(device, enabled=False), SingleRank())


def batch(number: int, device: str) -> Inputs:
    generator = torch.Generator().manual_seed(number)
    images = torch.randn(16, 3, 64, 64, generator=generator)
    return images.to(device), torch.randint(0, 10, (16,), generator=generator).to(device)


def losses(step: Step | RecordedStep, device: str, count: int) -> list[float]:
    rates = [0.05, 0.1, 0.02]
    return [float(step([batch(n, device)], rates[n % 3])) for n in range(count)]


def test_two_parts_train_as_their_mean() -> None:
    parts = []
    for number in (1, 2):
        images, labels = batch(number, "cpu")
        parts.append((images.double(), labels))
    loss = made("cpu", torch.float64)(parts, 0.0)
    alone = [float(made("cpu", torch.float64)([part], 0.0)) for part in parts]
    assert float(loss) == pytest.approx(sum(alone) / 2, rel=1e-12)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_recorded_step_trains_as_a_launched_one_with_changing_rates() -> None:
    device = torch.device("cuda")
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        launched = losses(made("cuda"), "cuda", 10)
        recorded = losses(RecordedStep(made("cuda"), Recorder(device)), "cuda", 10)
    assert recorded == pytest.approx(launched, rel=1e-3)
    assert launched[0] != launched[-1]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_recorded_predictions_follow_the_weights_and_the_inputs() -> None:
    layer = torch.nn.Linear(4, 3, device="cuda")
    recorded = RecordedPrediction(layer, Recorder(torch.device("cuda")))
    kept = []
    with torch.no_grad():
        for number in range(5):
            x = torch.full((2, 4), float(number), device="cuda")
            kept.append((recorded(x), layer(x)))
            layer.weight.add_(1.0)
        other = torch.ones(7, 4, device="cuda")
        torch.testing.assert_close(recorded(other), layer(other))
    for found, expected in kept:  # a later batch must not overwrite them
        torch.testing.assert_close(found, expected)
