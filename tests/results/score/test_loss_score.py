"""The loss behind a quality, and speeds in units of samples."""

from __future__ import annotations

import math

import pytest

from tests.support.trained_runs import HandmadeRun, course, job
from tests.support.trained_text import NEXT_TOKEN, text
from vflops.record.readout.contents import Contents
from vflops.results.figures import samples, training_figures
from vflops.results.score import figure_text, score_tables
from vflops.results.score.loss_score import loss_score
from vflops.results.score.score_file import TrainingScore
from vflops.results.score.scoring import score


def test_loss_perplexity_bits_per_byte_and_floor() -> None:
    found = loss_score(NEXT_TOKEN, text(**{"bytes per token": 4.0, "floor": 1.5}), 0.25)
    assert found is not None and found.value is not None
    assert found.value == pytest.approx(math.log(4))
    assert found.target == pytest.approx(math.log(8))
    assert found.perplexity == 4
    assert found.bits_per_byte == pytest.approx(0.5)  # 2 bits per token of 4 bytes
    assert found.floor == 1.5
    assert figure_text.loss(found) == (
        "1.386 nats per token, perplexity 4, 0.5 bits per byte "
        "(target 2.079; the source of the text itself: 1.5)"
    )


def test_without_bytes_or_a_source_there_is_less_to_say() -> None:
    found = loss_score(NEXT_TOKEN, text(), 0.25)
    assert found is not None
    assert (found.bits_per_byte, found.floor) == (None, None)
    assert figure_text.loss(found) == "1.386 nats per token, perplexity 4 (target 2.079)"


def test_a_quality_of_zero_has_an_infinite_loss() -> None:
    found = loss_score(NEXT_TOKEN, text(floor=1.5), 0.0)
    assert found is not None
    assert (found.value, found.perplexity) == (None, None)
    assert figure_text.loss(found) == "infinite"


def test_other_qualities_have_no_loss() -> None:
    assert loss_score(NEXT_TOKEN.model_copy(update={"of_loss": None}), text(), 0.25) is None
    assert loss_score(NEXT_TOKEN, text(), None) is None


@pytest.fixture
def training(handmade_run: HandmadeRun) -> TrainingScore:
    handmade_run.plan(job(1, goal=NEXT_TOKEN, data=text(floor=1.5)))
    handmade_run.attempt(1, 1000.0, *course(0.1, 0.2))
    return score(Contents(handmade_run.folder)).trainings[0]


def test_speed_is_quoted_in_tokens(training: TrainingScore) -> None:
    speed = training.speed
    assert speed is not None and speed.units_per_s is not None
    assert speed.samples_timed is not None
    assert speed.units_per_s == 64 * speed.samples_timed / training.work_s
    rows = dict(score_tables.training_rows(training))
    assert rows["speed"] == (
        f"{speed.units_per_s:,.0f} tokens/s ({speed.samples_per_s:.1f} samples/s of 64 tokens)"
    )
    assert rows["loss"].startswith("1.609 nats per token, perplexity 5 (target 2.079")


def test_comparisons_have_tokens_per_second(handmade_run: HandmadeRun) -> None:
    handmade_run.plan(job(1, goal=NEXT_TOKEN, data=text()))
    handmade_run.attempt(1, 1000.0, *course(0.1, 0.2))
    scored = score(Contents(handmade_run.folder))
    units = {name.unit for name in samples(scored) if name.name == "throughput"}
    assert units == {"samples/s", "tokens/s"}
    figure = training_figures(scored.trainings[0])["unit_throughput"]
    assert figure.text.endswith(" tokens/s")
