"""MFU against the measured ceiling and the vendor's peak, by several conventions."""

from __future__ import annotations

import pytest

from tests.support.language_models import GPT2, LENGTH, language_graph
from tests.support.sample_parts import MEASUREMENTS
from tests.support.trained_runs import WORKLOAD, HandmadeRun, course, job
from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.record.formats.job import DataFacts, SampleUnit
from vflops.record.readout.contents import Contents
from vflops.results.score import figure_text, score_tables
from vflops.results.score.score_file import TrainingScore
from vflops.results.score.scoring import score

DATA = DataFacts(
    path="/data",
    synthetic=True,
    fingerprint="0" * 64,
    train=1000,
    validation=200,
    unit=SampleUnit(name="tokens", count=LENGTH),
)


def scored(run: HandmadeRun, device: str) -> TrainingScore:
    run.graph = language_graph(GPT2).model_copy(update={"model": WORKLOAD})
    run.plan(job(1, data=DATA, rules="executed"), ceilings=MEASUREMENTS)
    run.attempt(1, 1000.0, *course(0.1, 0.2, device_name=device))
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


def test_other_models_have_no_conventions_for_transformers(handmade_run: HandmadeRun) -> None:
    handmade_run.plan(job(1), ceilings=MEASUREMENTS)
    handmade_run.attempt(1, 1000.0, *course(0.1, 0.2))
    found = score(Contents(handmade_run.folder)).trainings[0]
    assert found.conventions == ()
    assert score_tables.utilisation_rows(found) == []
