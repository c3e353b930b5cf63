"""Summaries of many training jobs: quantiles, outliers, and the jobs shown as examples."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from tests.support.large_ensembles import large_ensemble
from vflops.record.readout.contents import Contents
from vflops.results import many_trainings
from vflops.results.score.score_file import Score, TrainingScore
from vflops.results.score.scoring import score


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Score:
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = large_ensemble(tmp_path_factory.mktemp("many"), monkeypatch, 21)
        return Contents(folder).once(score)


def with_quality(scored: Score, *values: float | None) -> list[TrainingScore]:
    first = scored.trainings[0]
    return [
        first.model_copy(
            update={
                "job": 1 + number,
                "quality": first.quality.model_copy(update={"achieved": value}),
            }
        )
        for number, value in enumerate(values)
    ]


def quality(trainings: list[TrainingScore]) -> many_trainings.Distribution:
    return next(
        figure for figure in many_trainings.distributions(trainings) if figure.key == "quality"
    )


def test_quantiles_are_those_of_the_standard_library_where_they_fall_on_values(
    scored: Score,
) -> None:
    values = [0.9 - 0.01 * number for number in range(21)]
    figure = quality(with_quality(scored, *values))
    expected = statistics.quantiles(values, n=20, method="inclusive")
    assert figure.quantile(0.05) == pytest.approx(expected[0])
    assert figure.quantile(0.5) == pytest.approx(statistics.median(values))
    assert figure.quantile(0.95) == pytest.approx(expected[-1])
    assert (figure.quantile(0), figure.quantile(1)) == (min(values), max(values))
    assert figure.outliers == []


@pytest.mark.parametrize(
    ("values", "outliers"),
    [
        ((0.1, *(0.5 + 0.001 * number for number in range(20)), 0.9), [1, 22]),
        ((*[0.5] * 20, 0.4), [21]),
        ((*[0.5] * 20, 0.49), []),  # the others are equal, but 2 % do not matter
        ((*[0.25] * 15, *[0.1875, 0.3125] * 5, 0.125), []),  # shares of 16 samples
    ],
)
def test_outliers_are_far_from_the_middle_half(
    scored: Score, values: tuple[float, ...], outliers: list[int]
) -> None:
    trainings = with_quality(scored, *values)
    assert [training.job for training in quality(trainings).outliers] == outliers
    lines = [line for line in many_trainings.outlier_lines(trainings) if "accuracy" in line]
    assert len(lines) == bool(outliers)


def test_jobs_without_a_figure_are_counted(scored: Score) -> None:
    trainings = with_quality(scored, *[0.5] * 20, None)
    rows = {row[0]: row for row in many_trainings.distribution_rows(trainings)}
    assert rows["top-1 accuracy (20 of 21)"][1:] == ("0.5",) * 5


def test_examples_include_the_extremes_outliers_and_an_unfinished_job(scored: Score) -> None:
    trainings = with_quality(scored, *(0.5 + 0.001 * number for number in range(20)), 0.1)
    trainings[3] = trainings[3].model_copy(update={"complete": False})
    jobs = [training.job for training in many_trainings.examples(trainings, 8)]
    assert {21, 20, 4} <= set(jobs)
    assert jobs == sorted(set(jobs))
    assert len(jobs) <= 8


def test_few_training_jobs_are_listed(scored: Score, tmp_path: Path) -> None:
    few = scored.model_copy(update={"trainings": scored.trainings[: many_trainings.MANY]})
    assert many_trainings.listed(few) == list(few.trainings)
    assert many_trainings.summarised(few) == []
    assert many_trainings.listed(scored) == []
    (many,) = many_trainings.summarised(scored)
    assert many_trainings.title(many) == "image-classification, 21 models"


def test_a_job_that_is_far_too_slow_is_an_outlier_among_skewed_speeds(scored: Score) -> None:
    speeds = [4.6e6 * 1.3 ** (number % 5) for number in range(40)] + [2.1e5]
    trainings = tuple(
        (value, scored.trainings[0].model_copy(update={"job": job}))
        for job, value in enumerate(speeds, start=1)
    )
    figure = many_trainings.Distribution(
        "flops", "FLOPS", "FLOPS", len(speeds), tuple(sorted(trainings, key=lambda pair: pair[0]))
    )
    assert [training.job for training in figure.outliers] == [41]
