"""Command: any training script, in any framework, run unchanged and scored by its reports."""

from vflops.workloads.command.settings import PROFILES, CommandSettings
from vflops.workloads.contract.registry import register
from vflops.workloads.contract.spec import Quality, WorkloadSpec


@register
def command() -> WorkloadSpec:
    """Return the description of the workload; the quality is set by the user."""
    return WorkloadSpec(
        name="command",
        title="your own training script, in any framework",
        quality=Quality(name="quality", better="higher", exponent=1),
        combine="vflops.workloads.contract.combine:mean",
        settings=CommandSettings,
        profiles=PROFILES,
        code="vflops.workloads.command.workload:Command",
        runner="vflops.workloads.command.runner:run",
        in_suite=False,
    )
