"""MFU against the measured ceiling and the vendor's peak, by several conventions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.language_models import GPT2, LENGTH, language_graph
from tests.support.sample_parts import MEASUREMENTS
from tests.support.trained_runs import WORKLOAD, HandmadeRun, course, job
from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.record.formats.job import DataFacts, SampleUnit
from vflops.record.formats.measurement import Measurement
from vflops.record.readout.contents import Contents
from vflops.results.check.upper_bounds import check_upper_bounds
from vflops.results.score import figure_text, score_tables
from vflops.results.score.score_file import TrainingScore
from vflops.results.score.scoring import score
from vflops.units import percent

DATA = DataFacts(
    path="/data",
    synthetic=True,
    fingerprint="0" * 64,
    train=1000,
    validation=200,
    unit=SampleUnit(name="tokens", count=LENGTH),
)


def scored(
    run: HandmadeRun,
    device_name: str,
    ceilings: Sequence[Measurement] = MEASUREMENTS,
    device: str = "cuda:0",
) -> TrainingScore:
    run.graph = language_graph(GPT2).model_copy(update={"model": WORKLOAD})
    run.plan(job(1, data=DATA, rules="executed"), ceilings=tuple(ceilings))
    run.attempt(1, 1000.0, *course(0.1, 0.2, device_name=device_name, device=device))
    return score(Contents(run.folder)).trainings[0]


def test_conventions_stand_beside_our_rule_set(handmade_run: HandmadeRun) -> None:
    found = scored(handmade_run, "NVIDIA H200")
    assert [item.rules for item in found.conventions] == ["executed", "palm", "megatron", "causal"]
    assert found.speed is not None and found.speed.samples_timed is not None
    for item in found.conventions:
        ops = count(handmade_run.graph, convention(item.rules)).total.total
        assert item.batch_ops.total == ops
        timed = ops * found.speed.samples_timed / handmade_run.graph.batch
        assert item.flops == pytest.approx(timed / found.work_s, rel=1e-9)
        assert found.mfu.ceiling_flops is not None
        assert item.mfu == item.flops / found.mfu.ceiling_flops
        assert item.mfu_vendor == pytest.approx(item.flops / (2 * 67e12))  # two GPUs in fp32
    assert found.conventions[0].mfu == found.mfu.value
    names = [name for name, _ in score_tables.utilisation_rows(found)]
    assert names == [
        "of the vendor's peak",
        "by executed/1",
        "by palm/1",
        "by megatron/1",
        "by causal/1",
    ]
    assert "NVIDIA H200 data sheet" in figure_text.vendor(found.mfu)


def test_an_unknown_device_has_no_vendors_peak(handmade_run: HandmadeRun) -> None:
    found = scored(handmade_run, "Test GPU")
    assert found.mfu.vendor is None
    assert all(item.mfu_vendor is None for item in found.conventions)
    assert figure_text.vendor(found.mfu) == "— (no data sheet of Test GPU is known)"


def test_a_processor_has_no_vendors_peak(handmade_run: HandmadeRun) -> None:
    found = scored(handmade_run, "AMD EPYC", device="cpu")
    assert found.mfu.vendor is None
    assert figure_text.vendor(found.mfu) == "— (data sheets of processors are not used)"


def raised(benchmark: str, flops: float) -> list[Measurement]:
    """Return the ceilings, with those of a benchmark at this value."""
    return [
        item.model_copy(update={"value": flops, "samples": (flops,) * 3})
        if item.benchmark == benchmark
        else item
        for item in MEASUREMENTS
    ]


def test_the_ceiling_is_that_of_work_that_the_model_has(handmade_run: HandmadeRun) -> None:
    """A transformer has no convolutions, however fast they are; a ResNet has both."""
    product = max(
        item.value or 0.0
        for item in MEASUREMENTS
        if (item.benchmark, item.precision) == ("gemm", "fp32")
    )
    found = scored(handmade_run, "Test GPU", raised("convolution", 100 * product))
    assert found.mfu.ceiling == "fp32 gemm × 2"
    assert found.mfu.ceiling_flops == 2 * product
    assert check_upper_bounds(Contents(handmade_run.folder)).evidence.startswith(
        f"at most {percent(found.mfu.value)} of the measured ceiling"
    )


def test_a_transformer_without_a_measured_product_has_no_mfu(handmade_run: HandmadeRun) -> None:
    ceilings = [item for item in MEASUREMENTS if item.benchmark != "gemm"]
    found = scored(handmade_run, "Test GPU", ceilings)
    assert (found.mfu.value, found.mfu.reason) == (None, "no ceiling of gemm was measured in fp32")


def test_a_model_with_both_kinds_of_work_has_the_faster_ceiling(handmade_run: HandmadeRun) -> None:
    both = {node.kind for node in handmade_run.graph.nodes}
    assert {"convolution", "dense"} <= both
    handmade_run.plan(job(1), ceilings=tuple(raised("convolution", 1e15)))
    handmade_run.attempt(1, 1000.0, *course(0.1, 0.2))
    found = score(Contents(handmade_run.folder)).trainings[0]
    assert found.mfu.ceiling_flops == 2e15


def test_other_models_have_no_conventions_for_transformers(handmade_run: HandmadeRun) -> None:
    handmade_run.plan(job(1), ceilings=MEASUREMENTS)
    handmade_run.attempt(1, 1000.0, *course(0.1, 0.2))
    found = score(Contents(handmade_run.folder)).trainings[0]
    assert found.conventions == ()
    assert score_tables.utilisation_rows(found) == []
