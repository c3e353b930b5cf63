"""The digits meet what every workload must."""

from torch import Tensor, nn
from vflops_digits import digits

from vflops.testing.workloads import WorkloadConformance
from vflops.workloads.contract.workload import Inputs


class TestDigits(WorkloadConformance):
    """Inherited: every test of the suite."""

    spec = digits

    def perfect(self, inputs: Inputs) -> Tensor:
        """All the probability on the right class."""
        return nn.functional.one_hot(inputs[1], 10).float()
