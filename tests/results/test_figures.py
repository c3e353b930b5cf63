"""The figures of a score by key: values, labels, units and what they describe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.sample_parts import MEASUREMENTS
from tests.support.trained_runs import WORKLOAD, HandmadeRun, two_seeds
from vflops.record.readout.contents import Contents
from vflops.results.figures import Figure, Key, figures, mean_of, samples, training_figures
from vflops.results.score.score_file import Score
from vflops.results.score.scoring import score
from vflops.results.score.unscored import unscored


@pytest.fixture
def scored(handmade_run: HandmadeRun) -> Score:
    return score(Contents(two_seeds(handmade_run, MEASUREMENTS)))


def test_a_training_has_the_figures_of_its_score(scored: Score) -> None:
    training = scored.trainings[0]
    named = training_figures(training)
    assert training.speed is not None
    assert named["vflops"].value == training.speed.vflops_capped == training.speed.flops
    assert named["vflops_published"].value == training.speed.vflops
    assert named["vflops_published"].label == "VFLOPS as published"
    assert named["vflops_per_watt"].value == training.vflops_capped_per_watt
    assert named["quality_factor"].value == 1
    assert named["quality_factor_published"].value == training.quality.penalty
    quality = named["quality"]
    assert (quality.label, quality.unit, quality.better) == ("top-1 accuracy", None, "higher")
    assert (quality.text, named["time_to_quality"].better) == ("0.9", "lower")
    assert named["target"].better is None
    subject = quality.subject
    assert (subject.kind, subject.name, subject.seed) == ("training", WORKLOAD, 1)


def test_every_figure_knows_its_key(scored: Score) -> None:
    subjects = list(figures(scored))
    assert len(subjects) == len(scored.trainings) + len(scored.ceilings)
    for named in subjects:
        assert all(figure.key == key for key, figure in named.items())


def test_compared_figures_have_one_sample_per_seed(scored: Score) -> None:
    repeats = {name.title: values for name, values in samples(scored).items()}
    assert [sample.seed for sample in repeats[f"{WORKLOAD}: VFLOPS"]] == [1, 2]
    assert len(repeats["memory: copy"]) == 1
    assert "gemm: peak fp8" not in repeats  # not measured


def test_a_mean_needs_all_repeats(scored: Score) -> None:
    first, second = map(training_figures, scored.trainings)
    values = [first["flops"].value, second["flops"].value]
    assert mean_of([first, second], "flops") == pytest.approx(sum(v or 0.0 for v in values) / 2)
    second["flops"] = replace(second["flops"], value=None)
    assert mean_of([first, second], "flops") is None
    assert mean_of([first], "candidates") is None
    assert Figure(first["flops"].subject, "flops", "FLOPS", "FLOPS", "higher", None).text == "—"


def test_scores_of_older_versions_have_the_same_headline(scored: Score) -> None:
    """They have neither capped VFLOPS nor a capped factor; a rehearsal has no VFLOPS at all."""
    training = scored.trainings[0]
    assert training.speed is not None
    older = training.model_copy(
        update={
            "speed": training.speed.model_copy(update={"vflops_capped": None}),
            "quality": training.quality.model_copy(update={"penalty_capped": None}),
            "vflops_capped_per_watt": None,
        }
    )
    assert training_figures(older) == training_figures(training)
    unbounded = older.model_copy(
        update={
            "speed": older.speed and older.speed.model_copy(update={"vflops": None}),
            "quality": older.quality.model_copy(update={"penalty": None}),
        }
    )
    assert training_figures(unbounded)["vflops"].value == training.speed.flops
    assert training_figures(unbounded)["vflops_published"].value is None
    (rehearsed, *_) = unscored(scored).trainings
    keys: tuple[Key, ...] = ("vflops", "vflops_published", "vflops_per_watt")
    assert [training_figures(rehearsed)[key].value for key in keys] == [None] * 3
