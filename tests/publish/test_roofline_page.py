"""The roofline of a run: its trainings in their precision, with what they achieved."""

from __future__ import annotations

import pytest

from tests.support.sample_parts import MEASUREMENTS, measured
from tests.support.trained_runs import WORKLOAD, HandmadeRun, two_seeds
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
