"""The roofline of a run: its trainings in their precision, with what they achieved."""

from __future__ import annotations

import pytest

from tests.support.language_models import GPT2, language_graph
from tests.support.sample_parts import MEASUREMENTS, measured
from tests.support.trained_runs import WORKLOAD, HandmadeRun, course, job, two_seeds
from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.errors import UsageError
from vflops.publish.roofline_page import Roofline
from vflops.record.readout.contents import Contents

FASTER = (measured("gemm", "peak", "bf16", 9e11), measured("convolution", "forward", "bf16", 9e11))


@pytest.fixture
def contents(handmade_run: HandmadeRun) -> Contents:
    """A run that trained in fp32 on a machine that is faster in bf16."""
    return Contents(two_seeds(handmade_run, (*MEASUREMENTS, *FASTER)))


def test_a_trained_model_is_shown_in_its_precision_with_what_it_achieved(
    contents: Contents,
) -> None:
    chart = Roofline.from_trainings(contents, None)
    assert chart is not None and chart.machine.precisions()[0] == "bf16"
    assert [(bound.model, bound.precision) for bound in chart.bounds] == [(WORKLOAD, "fp32")]
    assert [star.name for star in chart.achieved] == [WORKLOAD]
    assert chart.sentences[0].startswith(f"Trained with batch 100, {WORKLOAD} achieved ")


def test_another_precision_has_no_achieved_point(contents: Contents) -> None:
    chart = Roofline.from_trainings(contents, "bf16")
    assert chart is not None
    assert [(bound.model, bound.precision) for bound in chart.bounds] == [(WORKLOAD, "bf16")]
    assert chart.achieved == ()
    assert not any("achieved" in sentence for sentence in chart.sentences)


def test_a_transformer_trained_in_fp8_is_shown_in_fp8(handmade_run: HandmadeRun) -> None:
    """torch has no convolution in fp8, and a transformer needs none."""
    handmade_run.graph = language_graph(GPT2).model_copy(update={"model": WORKLOAD})
    products = (measured("gemm", "peak", "fp8", 4e12), measured("gemm", "peak", "bf16", 9e11))
    others = (item for item in MEASUREMENTS if item.benchmark != "gemm")
    handmade_run.plan(job(1, rules="executed"), ceilings=(*others, *products))
    handmade_run.attempt(
        1, 1000.0, *course(0.1, 0.2, precision="mixed-fp8", ceiling_precision="fp8")
    )
    chart = Roofline.from_trainings(Contents(handmade_run.folder), None)
    assert chart is not None
    assert [(bound.model, bound.precision) for bound in chart.bounds] == [(WORKLOAD, "fp8")]
    assert [star.name for star in chart.achieved] == [WORKLOAD]


def test_a_precision_without_a_convolution_is_refused_for_a_model_with_convolutions(
    handmade_run: HandmadeRun,
) -> None:
    product = measured("gemm", "peak", "fp8", 4e12)
    contents = Contents(two_seeds(handmade_run, (*MEASUREMENTS, product)))
    with pytest.raises(UsageError, match="has no ceilings in 'fp8'") as refused:
        Roofline.from_trainings(contents, "fp8")
    assert refused.value.hint == "all that a roofline needs was measured in: fp32"


def test_models_without_a_training_need_the_ceilings_of_their_work(
    handmade_run: HandmadeRun,
) -> None:
    transformer = count(language_graph(GPT2), convention("executed"))
    network = count(handmade_run.graph, convention("executed"))
    product, memory = measured("gemm", "peak", "fp8", 4e12), measured("memory", "copy", None, 2e10)
    handmade_run.plan(job(1), ceilings=(product, memory))
    contents = Contents(handmade_run.folder)
    chart = Roofline.from_counts(contents, [transformer], None)
    assert [bound.precision for bound in chart.bounds] == ["fp8"]
    for counts in ([network], [transformer, network]):
        with pytest.raises(UsageError, match=r"\(gemm, convolution, memory\)"):
            Roofline.from_counts(contents, counts, None)
