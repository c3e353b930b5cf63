"""Compares the figures of a run with those of its reproduction: can chance explain differences?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from vflops.results.figures import Key
from vflops.results.figures import figures as score_figures
from vflops.results.score.score_file import Score
from vflops.studies.compare.figure_pairs import MIN_REPEATS, FigurePair, common_figures
from vflops.studies.reproduce.reproduction import Figure, Kind, Verdict
from vflops.units import percent

_KINDS: dict[Key, tuple[Kind, str | None, str | None]] = {
    "quality": ("quality", None, None),
    "flops": ("speed", "speed", "FLOPS"),
    "vflops": ("score", "score", "VFLOPS"),
    "open_vflops": ("score", "score of an open task", "VFLOPS"),
    "regulated": ("score", "regulated score", "FLOPS"),
    "time_to_quality": ("time", "time to quality", "s"),
}
"""Kind, name and unit of the compared figures in ``reproduction.json``.

If the name is None, the label of the figure is used.
"""


class _Name(NamedTuple):
    name: str
    kind: Kind
    unit: str | None


def compare_figures(recorded: Score, here: Score) -> tuple[Figure, ...]:
    """Return every figure that both runs have, with a verdict on the difference."""
    pairs = common_figures(_repeats(recorded), _repeats(here))
    return (*(_judged_by_repeats(pair) for pair in pairs), *_ceilings(recorded, here))


def _repeats(score: Score) -> dict[_Name, list[float]]:
    """Return the values of each figure, one per finished repeat."""
    repeats: dict[_Name, list[float]] = {}
    for named in score_figures(score):
        subject = next(iter(named.values())).subject
        if subject.kind == "base model" or (subject.kind == "training" and not subject.complete):
            continue
        is_ensemble = subject.kind == "ensemble"
        prefix = f"{subject.workload} ensemble" if is_ensemble else subject.workload
        for key, (kind, name, unit) in _KINDS.items():
            figure = named.get(key)
            if figure is not None and figure.value is not None:
                full_name = _Name(f"{prefix} {name or figure.label}", kind, unit)
                repeats.setdefault(full_name, []).append(figure.value)
    return repeats


def _judged_by_repeats(pair: FigurePair[_Name]) -> Figure:
    if len(pair.base) < MIN_REPEATS:
        few = f"the recorded run has only {len(pair.base)} of the {MIN_REPEATS} repeats needed"
        return _judged(pair, None, few)
    return _judged(pair, pair.expected_spread())


def _ceilings(recorded: Score, here: Score) -> Iterator[Figure]:
    """Yield the ceilings that both runs have, judged by the spread of their samples.

    If one of the runs has several kinds of nodes, only ceilings of equal kinds are compared.
    """
    kinds = [{c.kind for c in run.ceilings} - {None} for run in (recorded, here)]
    several = max(map(len, kinds)) > 1
    new = {(c.benchmark, c.case, c.precision, several and c.kind): c for c in here.ceilings}
    for old in recorded.ceilings:
        other = new.get((old.benchmark, old.case, old.precision, several and old.kind))
        if other is None or old.value is None or other.value is None:
            continue
        name = " ".join(filter(None, (old.benchmark, old.case, old.precision)))
        pair = FigurePair(_Name(name, "ceiling", old.unit), [old.value], [other.value])
        difference = abs(other.value - old.value)
        if old.spread is None or other.spread is None:
            yield _judged(pair, None, "the spread of its samples is not known")
        elif 0 < difference - old.value * old.spread <= other.value * other.spread:
            yield _judged(pair, None, f"its samples here spread by {percent(other.spread)}")
        else:
            yield _judged(pair, old.value * old.spread)


def _judged(pair: FigurePair[_Name], spread: float | None, unknown: str | None = None) -> Figure:
    """Return the figure with its verdict; ``unknown`` says why there is no ``spread``."""
    old, new = pair.base_mean, pair.value_mean
    assert old is not None and new is not None
    verdict: Verdict
    if new == old:
        verdict = "equal"
    elif spread is None:
        verdict = "cannot tell"
    else:
        verdict = "within" if abs(new - old) <= spread else "outside"
    return Figure(
        name=pair.name.name,
        kind=pair.name.kind,
        unit=pair.name.unit,
        recorded=old,
        here=new,
        difference=pair.difference,
        spread=None if spread is None or not old else spread / abs(old),
        verdict=verdict,
        reason=unknown if verdict == "cannot tell" else None,
    )
