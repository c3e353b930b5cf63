"""Rules for operation counts: tokens that speeds are quoted in are those that the graph reads."""

from __future__ import annotations

import pytest

from tests.support.language_models import GPT2, LENGTH, language_graph
from tests.support.text_jobs import text_job
from tests.support.trained_runs import WORKLOAD, HandmadeRun, course, job
from vflops.record.formats.job import DataFacts, SampleUnit
from vflops.record.readout.contents import Contents
from vflops.results.check.counting_rules import check_operations


@pytest.mark.parametrize(
    ("unit", "fault"),
    [
        (SampleUnit(name="tokens", count=LENGTH), None),
        (None, None),
        (
            SampleUnit(name="tokens", count=10 * LENGTH),
            "a sample is said to have 160 tokens, but the graph reads 48 for 3 samples",
        ),
    ],
)
def test_a_sample_has_the_tokens_of_the_graph(
    handmade_run: HandmadeRun, unit: SampleUnit | None, fault: str | None
) -> None:
    graph = language_graph(GPT2).model_copy(update={"model": WORKLOAD})
    handmade_run.graph = graph
    data = DataFacts(
        path="/data", synthetic=True, fingerprint="0" * 64, train=1000, validation=200, unit=unit
    )
    handmade_run.plan(job(1, data=data))
    handmade_run.attempt(1, 1000.0, *course(0.1, parameters=graph.parameter_count))
    outcome = check_operations(Contents(handmade_run.folder))
    if fault is None:
        assert "tokens" not in outcome.evidence
    else:
        assert (outcome.verdict, outcome.evidence) == ("fail", f"job 1: {fault}")


@pytest.mark.parametrize(
    ("unit", "stated"),
    [
        (SampleUnit(name="tokens", count=64), None),
        (None, "no unit"),
        (SampleUnit(name="words", count=64), "64 words"),
        (SampleUnit(name="tokens", count=640), "640 tokens"),
    ],
)
def test_a_sample_of_a_language_model_has_the_tokens_of_its_settings(
    handmade_run: HandmadeRun, unit: SampleUnit | None, stated: str | None
) -> None:
    handmade_run.graph = language_graph(GPT2).model_copy(update={"model": "language-model"})
    record = text_job()
    data = record.data.model_copy(update={"unit": unit})
    handmade_run.plan(record.model_copy(update={"data": data, "rules": "executed"}))
    outcome = check_operations(Contents(handmade_run.folder))
    fault = f"job 1: a sample has 64 tokens by the settings, but {stated} by the record"
    assert (outcome.evidence == fault) is (stated is not None), outcome.evidence
