"""Language model: a transformer trained to a probability of the next token."""

from vflops.metrics.quality import EXPONENT_LANGUAGE_MODEL
from vflops.workloads.contract.registry import register
from vflops.workloads.contract.spec import Quality, WorkloadSpec
from vflops.workloads.language_model.settings import PROFILES, LanguageSettings


@register
def language_model() -> WorkloadSpec:
    """Return the description of the workload."""
    return WorkloadSpec(
        name="language-model",
        title="transformer trained to a probability of the next token; GPT-2 124M in reference",
        quality=Quality(
            name="next-token probability",
            better="higher",
            exponent=EXPONENT_LANGUAGE_MODEL,
            bounds=(0.0, 1.0),
            of_loss="exp(-loss)",
        ),
        combine="vflops.workloads.contract.combine:mean",
        settings=LanguageSettings,
        profiles=PROFILES,
        measures_loss=True,
        exhibit="vflops.workloads.language_model.exhibit:figures",
        code="vflops.workloads.language_model.workload:LanguageModel",
        expected="vflops.workloads.language_model.expected:expected",
        data_remarks="vflops.workloads.language_model.text_remarks:remarks",
    )
