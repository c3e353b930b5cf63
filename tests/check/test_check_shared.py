"""Stages and exchanges that were not told are found; 8 bits are for one paper and not the other."""

from __future__ import annotations

from typing import Any

import pytest

from shared_runs import MIXED, exchange, shared_run, stages, told
from trained_runs import HandmadeRun, Note
from vflops.check.level import layer_of
from vflops.check.papers import PaperRules
from vflops.check.published import HPCAI500_V2, HPCAI500_V3
from vflops.check.told import as_told
from vflops.config.training import CEILING_OF, TrainSettings
from vflops.score.contents import Contents


def test_a_run_that_shared_as_it_was_told_passes(handmade_run: HandmadeRun) -> None:
    folder = shared_run(handmade_run, told(**MIXED), stages(), exchange())
    outcome = as_told(Contents(folder))
    assert (outcome.verdict, outcome.evidence) == ("pass", "1 job, as run.json has it")


@pytest.mark.parametrize(
    ("note", "words"),
    [
        (stages(micro_batches=50), "micro-batches: 50, 5 was told"),
        (stages(ranks=4), "ranks of a copy: 4, 2 was told"),
        (stages(schedule="gpipe"), "schedule gpipe, 1f1b was told"),
        (stages(operations=[1, 1, 1, 1]), "stages: 4, 2 was told"),
        (exchange(precision="fp32"), "gradients sent in fp32, int8 was told"),
        (exchange(mode="torus"), "gradients averaged by torus, all-reduce was told"),
        (exchange(ranks=4), "copies of the model: 4, 2 was told"),
    ],
)
def test_what_was_not_told_is_found(handmade_run: HandmadeRun, note: Note, words: str) -> None:
    outcome = as_told(Contents(shared_run(handmade_run, told(**MIXED), note)))
    assert (outcome.verdict, outcome.evidence) == ("fail", words)
    assert "events.jsonl" in str(outcome.where)


def test_stages_of_a_model_that_nobody_cut_are_found(handmade_run: HandmadeRun) -> None:
    outcome = as_told(Contents(shared_run(handmade_run, told(2), stages())))
    assert outcome.evidence == "stages: 2, 0 was told"


@pytest.mark.parametrize("precision", ["mixed-fp8", "mixed-int8"])
def test_8_bits_are_a_result_of_v3_and_not_of_v2(handmade_run: HandmadeRun, precision: str) -> None:
    facts: dict[str, Any] = {"precision": precision, "ceiling_precision": CEILING_OF[precision]}
    folder = shared_run(handmade_run, told(2, precision=precision), **facts)
    contents = Contents(folder)
    assert as_told(contents).verdict == "pass"
    assert PaperRules(HPCAI500_V3).precision(contents).verdict == "pass"
    assert PaperRules(HPCAI500_V2).precision(contents).verdict == "fail"


def test_every_setting_of_ranks_has_a_layer() -> None:
    found = {
        f"{section}.{name}": layer_of(f"train.{section}.{name}")
        for section in ("parallel", "communication")
        for name in getattr(TrainSettings(), section).model_dump()
    }
    assert {layer for name, layer in found.items() if name.startswith("parallel")} == {
        "programming model"
    }
    assert found["communication.mode"] == found["communication.near"] == "communication libraries"
    assert found["communication.precision"] == "workload implementation"
