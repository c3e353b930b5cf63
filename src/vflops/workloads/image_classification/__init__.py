"""Image classification: ResNet-50 trained to a top-1 accuracy (HPC AI500 V2.0 and V3.0)."""

from vflops.counting.conventions import PUBLISHED_CONVENTION
from vflops.metrics.quality import EXPONENT_IMAGE_CLASSIFICATION
from vflops.workloads.contract.registry import register
from vflops.workloads.contract.spec import Quality, WorkloadSpec
from vflops.workloads.image_classification.settings import PROFILES, ImageSettings


@register
def image_classification() -> WorkloadSpec:
    """Return the description of the workload."""
    return WorkloadSpec(
        name="image-classification",
        title="ResNet trained to a top-1 accuracy, HPC AI500; ResNet-50 in gpu and reference",
        quality=Quality(
            name="top-1 accuracy", better="higher", exponent=EXPONENT_IMAGE_CLASSIFICATION
        ),
        combine="vflops.workloads.contract.combine:mean",
        settings=ImageSettings,
        profiles=PROFILES,
        classifier="vflops.workloads.image_classification.description:classifier",
        measures_loss=True,
        rules=PUBLISHED_CONVENTION,
        code="vflops.workloads.image_classification.workload:ImageClassification",
        expected="vflops.workloads.image_classification.expected:expected",
    )
