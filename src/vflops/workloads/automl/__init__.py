"""AutoML: workers search for architectures and train them until the time is up (AIPerf)."""

from vflops.counting.conventions.aiperf import AIPERF
from vflops.metrics.quality import EXPONENT_IMAGE_CLASSIFICATION
from vflops.workloads.automl.settings import PROFILES, AutomlSettings
from vflops.workloads.contract.registry import register
from vflops.workloads.contract.spec import Quality, WorkloadSpec


@register
def automl() -> WorkloadSpec:
    """Return the description of the workload."""
    return WorkloadSpec(
        name="automl",
        title="search for image classifiers from ResNet-50, AIPerf; score in operations per second",
        quality=Quality(
            name="top-1 accuracy", better="higher", exponent=EXPONENT_IMAGE_CLASSIFICATION
        ),
        combine="vflops.workloads.contract.combine:mean",
        settings=AutomlSettings,
        profiles=PROFILES,
        measures_loss=True,
        rules=AIPERF.id,
        code="vflops.workloads.automl.workload:Automl",
        runner="vflops.workloads.automl.worker:run",
        observer="vflops.workloads.automl.worker_progress:observer",
        is_search=True,
        data_remarks="vflops.workloads.automl.search_length:remarks",
        expected="vflops.workloads.image_classification.expected:expected",
    )
