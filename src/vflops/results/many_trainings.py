"""Summaries of many training jobs: how their figures are distributed, and which are outliers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vflops.results.figures import Key, format_value, training_figures
from vflops.results.score.score_file import Score, TrainingScore
from vflops.units import count

MANY = 16
"""With more training jobs of a workload, their figures are summarised instead of listed."""
DISTRIBUTION = ("figure", "lowest", "5 %", "median", "95 %", "highest")
"""The columns of ``distribution_rows``."""
_FIGURES: dict[Key, Callable[[TrainingScore], float | None]] = {
    "quality": lambda training: training.quality.achieved,
    "flops": lambda training: training.speed.flops if training.speed else None,
    "time_to_quality": lambda training: training.quality.time_to_quality_s,
    "power": lambda training: training.power.power_w,
    "wall_time": lambda training: training.wall_s,
}
_FENCE = 3.0
"""An outlier is this many interquartile ranges below the first or above the third quartile (Tukey's
outer fences)."""
_MIN_FENCE = 0.03
"""The smallest distance of an outlier from the quartiles, as a share of the median."""
_WIDER = 2.44
"""The range from 5 to 95 % divided by that from 25 to 75 %, of a normal distribution."""
_MAX_NAMED = 4


@dataclass(frozen=True)
class Distribution:
    """One figure of many training jobs."""

    key: Key
    label: str
    unit: str | None
    jobs: int
    values: tuple[tuple[float, TrainingScore], ...]
    """The values that are known, in ascending order, each with its training job."""

    def quantile(self, share: float) -> float:
        """Return the value below which this share of the values lies, one of the values."""
        return self.values[round(share * (len(self.values) - 1))][0]

    @property
    def outliers(self) -> list[TrainingScore]:
        """The jobs whose values are far from those of the middle half, the farthest first."""
        # Times and speeds vary by factors: without logarithms, no value would be far too small.
        of = math.log if self.key != "quality" and self.values[0][0] > 0 else float
        low, middle, high = (of(self.quantile(share)) for share in (0.25, 0.5, 0.75))
        # More than half of the values may be equal, such as the share of a few samples.
        spread = high - low or (of(self.quantile(0.95)) - of(self.quantile(0.05))) / _WIDER
        least = -math.log1p(-_MIN_FENCE) if of is math.log else _MIN_FENCE * abs(middle)
        fence = max(_FENCE * spread, least)
        far = [
            (max(low - of(value), of(value) - high), training)
            for value, training in self.values
            if of(value) < low - fence or of(value) > high + fence
        ]
        return [training for _, training in sorted(far, key=lambda pair: (-pair[0], pair[1].job))]

    def text(self, value: float) -> str:
        """Return a value with its unit."""
        return format_value(self.unit, value)


def by_workload(trainings: Sequence[TrainingScore]) -> list[list[TrainingScore]]:
    """Return the training jobs of each workload, in order."""
    groups: dict[str, list[TrainingScore]] = {}
    for training in trainings:
        groups.setdefault(training.workload, []).append(training)
    return list(groups.values())


def listed(score: Score) -> list[TrainingScore]:
    """Return the training jobs that are few enough to be listed one by one."""
    groups = by_workload(score.trainings)
    return [training for group in groups if len(group) <= MANY for training in group]


def summarised(score: Score) -> list[list[TrainingScore]]:
    """Return the training jobs of each workload that has too many to be listed."""
    return [group for group in by_workload(score.trainings) if len(group) > MANY]


def distributions(trainings: Sequence[TrainingScore]) -> list[Distribution]:
    """Return how the figures of training jobs of one workload are distributed.

    A figure that no job has is left out.
    """
    figures = training_figures(trainings[0])
    found = []
    for key, value_of in _FIGURES.items():
        known = [(value_of(training), training) for training in trainings]
        values = [(value, training) for value, training in known if value is not None]
        if values:
            figure = figures[key]
            ordered = sorted(values, key=lambda pair: (pair[0], pair[1].job))
            found.append(
                Distribution(key, figure.label, figure.unit, len(trainings), tuple(ordered))
            )
    return found


def distribution_rows(trainings: Sequence[TrainingScore]) -> list[tuple[str, ...]]:
    """Return one row per figure, with the columns of ``DISTRIBUTION``."""
    return [
        (
            f"{figure.label}{_known(figure)}",
            *(figure.text(figure.quantile(share)) for share in (0, 0.05, 0.5, 0.95, 1)),
        )
        for figure in distributions(trainings)
    ]


def outlier_lines(trainings: Sequence[TrainingScore]) -> list[str]:
    """Return one line per figure that has outliers, with the farthest of them."""
    return [
        f"outliers in {figure.label}: {_outliers_text(figure, outliers)}"
        for figure in distributions(trainings)
        if (outliers := figure.outliers)
    ]


def title(trainings: Sequence[TrainingScore]) -> str:
    """Return the workload with its number of models or seeds, and how many have finished."""
    what = "model" if trainings[0].model is not None else "seed"
    ensembles = len({training.repeat for training in trainings})
    of = f" of {ensembles:,} ensembles" if what == "model" and ensembles > 1 else ""
    unfinished = sum(not training.complete for training in trainings)
    rest = f", {unfinished:,} of them not finished" if unfinished else ""
    return f"{trainings[0].workload}, {count(len(trainings), what)}{of}{rest}"


def examples(trainings: Sequence[TrainingScore], at_most: int) -> list[TrainingScore]:
    """Return the jobs to show in detail, in order: extremes, medians, outliers, unfinished ones."""
    spread = [figure for figure in distributions(trainings) if figure.key != "power"]
    chosen: dict[int, TrainingScore] = {}
    for position in (0.0, 1.0, 0.5):
        for figure in spread:
            _, training = figure.values[round(position * (len(figure.values) - 1))]
            chosen.setdefault(training.job, training)
    unfinished = [training for training in trainings if not training.complete and training.attempts]
    far = [training for figure in spread for training in figure.outliers]
    for training in (*unfinished[:1], *far, *unfinished):
        chosen.setdefault(training.job, training)
    first = list(chosen.values())[:at_most] or list(trainings[:at_most])
    return sorted(first, key=lambda training: training.job)


def _known(figure: Distribution) -> str:
    if len(figure.values) == figure.jobs:
        return ""
    return f" ({len(figure.values):,} of {figure.jobs:,})"


def _outliers_text(figure: Distribution, outliers: Sequence[TrainingScore]) -> str:
    values = {training.job: value for value, training in figure.values}
    named = [f"job {job.job} {figure.text(values[job.job])}" for job in outliers[:_MAX_NAMED]]
    more = len(outliers) - len(named)
    return ", ".join(named) + (f" and {more:,} more" if more else "")
