"""Command: any training script, in any framework, run as it is and scored by what it reports."""

from vflops.workloads.command.settings import PROFILES, CommandSettings
from vflops.workloads.contract.registry import register
from vflops.workloads.contract.spec import Quality, WorkloadSpec


@register
def command() -> WorkloadSpec:
    """What describes the workload; what it is judged by is the user's to say."""
    return WorkloadSpec(
        name="command",
        title="your own training script, in any framework",
        quality=Quality(name="quality", better="higher", exponent=1),
        combine="vflops.workloads.contract.combine:mean",
        settings=CommandSettings,
        profiles=PROFILES,
        code="vflops.workloads.command.workload:Command",
        runner="vflops.workloads.command.runner:run",
        can_be_bagged=False,  # a script tells a quality; what makes it up is the script's own
        in_suite=False,
    )
