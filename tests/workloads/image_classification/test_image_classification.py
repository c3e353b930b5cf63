"""Image classification meets what every workload must."""

from __future__ import annotations

import pytest
from torch import Tensor, nn

from vflops.testing.workloads import WorkloadConformance
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.workload import Inputs


@pytest.mark.usefixtures("forked_ranks")
class TestConformance(WorkloadConformance):
    spec = workload("image-classification")

    def perfect(self, inputs: Inputs) -> Tensor:
        return nn.functional.one_hot(inputs[1], 4).float()
