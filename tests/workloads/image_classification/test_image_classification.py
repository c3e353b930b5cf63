"""Image classification meets what every workload must."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from vflops.testing.workloads import WorkloadConformance
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.workload import Inputs
from vflops.workloads.image_classification.quality import Top1Meter, accuracy, cross_entropy


class TestConformance(WorkloadConformance):
    spec = workload("image-classification")
    shorter = ("train.epochs=2",)

    def perfect(self, inputs: Inputs) -> Tensor:
        return nn.functional.one_hot(inputs[1], 4).float()


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_loss_is_the_cross_entropy_of_every_sample_once_without_smoothing(ranks: int) -> None:
    """Whatever the number of ranks and however the last batches are padded."""
    torch.manual_seed(1)
    logits, labels = torch.randn(50, 4), torch.randint(0, 4, (50,))
    summaries = []
    for rank in range(ranks):
        meter = Top1Meter(torch.device("cpu"))
        for start in range(rank * 8, 50, ranks * 8):
            positions = torch.arange(start, start + 8)
            rows, valid = positions.clamp(max=49), positions < 50
            meter.update(logits[rows].softmax(1), (torch.empty(0), labels[rows]), valid)
        summaries.append(meter.summary())
    expected = nn.functional.cross_entropy(logits.double(), labels)
    assert cross_entropy(summaries) == pytest.approx(float(expected), rel=1e-6)
    assert accuracy(summaries) == float((logits.argmax(1) == labels).double().mean())


def test_the_loss_of_an_impossible_label_is_finite_and_that_of_nan_is_not() -> None:
    meter = Top1Meter(torch.device("cpu"))
    labels, valid = torch.tensor([1]), torch.tensor([True])
    meter.update(torch.tensor([[1.0, 0.0]]), (torch.empty(0), labels), valid)
    assert cross_entropy([meter.summary()]) == pytest.approx(87.34, rel=1e-3)
    meter.update(torch.tensor([[math.nan, math.nan]]), (torch.empty(0), labels), valid)
    assert math.isnan(cross_entropy([meter.summary()]))
