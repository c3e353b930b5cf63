"""Digits: an example of a workload in another package. This module does not import torch."""

from vflops.workloads.contract.spec import Quality, WorkloadSpec
from vflops_digits.settings import PROFILES, DigitsSettings

digits = WorkloadSpec(
    name="digits",
    title="a small network reads digits of 8×8 pixels",
    quality=Quality(name="accuracy", better="higher", exponent=5),
    combine="vflops.workloads.contract.combine:mean",
    settings=DigitsSettings,
    profiles=PROFILES,
    code="vflops_digits.workload:Digits",
    in_suite=False,
)
