"""The figures of a score by name, each with its repeats: what comparisons and histories look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from vflops.results.score.figure_text import number
from vflops.results.score.score_file import EnsembleScore, PowerScore, Score
from vflops.units import percent, quantity, seconds

MODELS = "models"
"""The unit of what is counted, so it has no decimals."""
Better = Literal["higher", "lower"]
Kind = Literal["result", "ceiling"]


@dataclass(frozen=True)
class FigureName:
    """What a figure is of, and how it is read."""

    workload: str
    """Or the benchmark of a ceiling."""
    name: str
    unit: str | None
    better: Better
    seeded: bool = False
    """Whether the seed decides it too: repeats of one seed then say nothing of other seeds."""
    kind: Kind = "result"

    @property
    def title(self) -> str:
        """How it is called where there are others."""
        return f"{self.workload}: {self.name}"


class Sample(NamedTuple):
    """One repeat of a figure."""

    seed: int
    value: float


Samples = dict[FigureName, list[Sample]]


def samples(score: Score) -> Samples:
    """Every figure of what came to its end, with its repeats; what was not measured is left out."""
    found: Samples = {}
    for figures in (_trainings(score), _ensembles(score), _searches(score), _ceilings(score)):
        for name, seed, value in figures:
            if value is not None:
                found.setdefault(name, []).append(Sample(seed, value))
    return found


def shown(unit: str | None, value: float) -> str:
    """A figure as people write it."""
    if unit == "s":
        return seconds(value)
    if unit == "share":
        return percent(value)
    if unit == MODELS:
        return f"{number(value)} {unit}"
    return quantity(value, unit) if unit else number(value)


_Found = Iterator[tuple[FigureName, int, float | None]]


def _trainings(score: Score) -> _Found:
    for each in score.trainings:
        if not each.complete or each.model is not None:
            continue
        of, quality, speed = each.workload, each.quality, each.speed
        if speed is not None:
            yield FigureName(of, "VFLOPS", "VFLOPS", "higher", True), each.seed, speed.vflops
            yield FigureName(of, "FLOPS", "FLOPS", "higher"), each.seed, speed.flops
            yield (
                FigureName(of, "throughput", "samples/s", "higher"),
                each.seed,
                speed.samples_per_s,
            )
        named = FigureName(of, quality.name, None, quality.better, True)
        yield named, each.seed, quality.achieved
        time = FigureName(of, "time to quality", "s", "lower", True)
        yield time, each.seed, quality.time_to_quality_s
        yield FigureName(of, "share of the ceiling", "share", "higher"), each.seed, each.mfu.value
        yield FigureName(of, "power", "W", "lower"), each.seed, _own_power(each.power)
        per_watt = FigureName(of, "VFLOPS a watt", "VFLOPS/W", "higher", True)
        yield per_watt, each.seed, each.vflops_per_watt


def _own_power(power: PowerScore) -> float | None:
    """Power that was this training's alone."""
    return None if power.shared_with else power.power_w


def _ensembles(score: Score) -> _Found:
    for each in score.ensembles:
        if each.partial:
            continue
        of, seed = f"{each.workload}, {each.planned} models", _seed(score, each)
        yield FigureName(of, "VFLOPS", "VFLOPS", "higher", True), seed, each.vflops
        yield FigureName(of, "FLOPS", "FLOPS", "higher"), seed, each.flops
        better = _better(score, each.workload)
        yield FigureName(of, each.quality_name, None, better, True), seed, each.achieved
        yield FigureName(of, "time of all models", "s", "lower"), seed, each.window_s
        yield FigureName(of, "power", "W", "lower"), seed, each.power.power_w
        per_watt = FigureName(of, "VFLOPS a watt", "VFLOPS/W", "higher", True)
        yield per_watt, seed, each.vflops_per_watt


def _seed(score: Score, ensemble: EnsembleScore) -> int:
    """Of the first of its models: other repeats begin with another."""
    of = ensemble.workload, ensemble.repeat
    return min(each.seed for each in score.trainings if (each.workload, each.repeat) == of)


def _better(score: Score, workload: str) -> Better:
    return next(each.quality.better for each in score.trainings if each.workload == workload)


def _searches(score: Score) -> _Found:
    for each in score.searches:
        of = each.workload
        yield FigureName(of, "OPS", "OPS", "higher"), each.seed, each.ops_per_s
        regulated = FigureName(of, "regulated score", "OPS", "higher", True)
        yield regulated, each.seed, each.regulated
        yield FigureName(of, "best error", None, "lower", True), each.seed, each.error
        trained = sum(one.state == "trained" for one in each.candidates)
        yield FigureName(of, "candidates trained", MODELS, "higher", True), each.seed, trained
        yield FigureName(of, "power", "W", "lower"), each.seed, each.power.power_w
        yield FigureName(of, "OPS a watt", "OPS/W", "higher"), each.seed, each.ops_per_watt


def _ceilings(score: Score) -> _Found:
    """A ceiling once a run: samples of one measurement follow one another, they are no repeats.

    A machine's best is compared with another's, also where one has an accelerator and one has none.
    """
    for each in score.ceilings:
        name = " ".join(filter(None, (each.case, each.precision)))
        named = FigureName(each.benchmark, name, each.unit, "higher", kind="ceiling")
        yield named, 0, each.value
