"""The figures of two runs of the same settings, and whether chance explains the difference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from vflops.metrics.statistics import mean, stdev
from vflops.metrics.student_t import student_t_quantile
from vflops.results.score.score_file import Score
from vflops.studies.reproduce.reproduction import Figure, Kind
from vflops.units import percent

LEAST_RUNS = 3
"""Trainings that a spread needs."""
_LEVEL = 0.95
Named = tuple[str, Kind, str | None]


def figures(recorded: Score, here: Score) -> tuple[Figure, ...]:
    """Every figure that both runs have."""
    old, new = _samples(recorded), _samples(here)
    found = [_figure(name, old[name], new[name]) for name in old if name in new]
    return (*found, *_ceilings(recorded, here))


def _samples(score: Score) -> dict[Named, list[float]]:
    """The figures of all trainings that ended, the repeats of one thing together."""
    found: dict[Named, list[float]] = {}
    for name, value in _values(score):
        if value is not None:
            found.setdefault(name, []).append(value)
    return found


def _values(score: Score) -> Iterator[tuple[Named, float | None]]:
    for each in score.trainings:
        if each.complete and each.model is None:
            yield (f"{each.workload} {each.quality.name}", "quality", None), each.quality.achieved
            if each.speed is not None:
                yield (f"{each.workload} speed", "speed", "FLOPS"), each.speed.flops
                yield (f"{each.workload} score", "score", "VFLOPS"), each.speed.vflops
            time_s = each.quality.time_to_quality_s
            yield (f"{each.workload} time to quality", "time", "s"), time_s
    for whole in score.ensembles:
        name = f"{whole.workload} ensemble"
        yield (f"{name} {whole.quality_name}", "quality", None), whole.achieved
        yield (f"{name} speed", "speed", "FLOPS"), whole.flops
        yield (f"{name} score", "score", "VFLOPS"), whole.vflops
    for search in score.searches:
        yield (f"{search.workload} best error", "quality", None), search.error
        yield (f"{search.workload} speed", "speed", "FLOPS"), search.ops_per_s
        yield (f"{search.workload} regulated score", "score", "FLOPS"), search.regulated


def _figure(name: Named, old: Sequence[float], new: Sequence[float]) -> Figure:
    few = None
    if len(old) < LEAST_RUNS:
        few = f"too few trainings in the record, {len(old)} of {LEAST_RUNS}"
    spread = None if few else _chance(old, len(new))
    return _judged(name, mean(old), mean(new), spread, few)


def _chance(old: Sequence[float], many: int) -> float:
    """How far the mean of ``many`` more trainings may be from that of ``old`` by chance."""
    t = -student_t_quantile((1 - _LEVEL) / 2, degrees_of_freedom=len(old) - 1)
    return t * stdev(old) * math.sqrt(1 / len(old) + 1 / many)


def _ceilings(recorded: Score, here: Score) -> Iterator[Figure]:
    new = {(each.benchmark, each.case, each.precision): each for each in here.ceilings}
    for old in recorded.ceilings:
        other = new.get((old.benchmark, old.case, old.precision))
        if other is None or old.value is None or other.value is None:
            continue
        name = " ".join(filter(None, (old.benchmark, old.case, old.precision)))
        named: Named = (name, "ceiling", old.unit)
        apart = abs(other.value - old.value)
        if old.spread is None or other.spread is None:
            few = "its samples have no spread"
            yield _judged(named, old.value, other.value, None, few)
        elif 0 < apart - old.value * old.spread <= other.value * other.spread:
            few = f"measured here it spreads by {percent(other.spread)}"
            yield _judged(named, old.value, other.value, None, few)
        else:
            yield _judged(named, old.value, other.value, old.value * old.spread, None)


def _judged(name: Named, old: float, new: float, chance: float | None, few: str | None) -> Figure:
    difference = (new - old) / abs(old) if old else None
    spread = None if chance is None or not old else chance / abs(old)
    if new == old:
        return _made(name, old, new, difference, spread, "equal", None)
    if chance is None:
        return _made(name, old, new, difference, None, "cannot tell", few)
    verdict = "within" if abs(new - old) <= chance else "outside"
    return _made(name, old, new, difference, spread, verdict, None)


def _made(
    name: Named,
    old: float,
    new: float,
    difference: float | None,
    spread: float | None,
    verdict: str,
    reason: str | None,
) -> Figure:
    return Figure.model_validate(
        {
            "name": name[0],
            "kind": name[1],
            "unit": name[2],
            "recorded": old,
            "here": new,
            "difference": difference,
            "spread": spread,
            "verdict": verdict,
            "reason": reason,
        }
    )
