"""AIPerf's rules: whether a search is a valid result, and how it deviates from the paper.

A search that breaks a rule is still scored, and the score lists the broken rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.aiperf_table import MAX_ERROR_IN_TEXT, SearchSetup, deviations
from vflops.results.score.score_file import AiperfVerdict, Deviation, SearchEnding
from vflops.units import percent, seconds
from vflops.workloads.automl.candidate_history import CandidateHistory
from vflops.workloads.automl.search_moments import MAX_VARIATION
from vflops.workloads.automl.settings import AutomlSettings

MIN_DURATION_S = 3600.0
_ROUNDING = 1e-9
"""Tolerance of errors, because 1 − 0.7 is slightly more than 0.3 in floating point."""
_CLOCK_S = 1.0
"""The largest difference between two clocks over an hour."""
MAX_PAUSE_S = 180.0
"""Interruptions of a worker up to this sum count as search time: a worker that died is restarted
within seconds to minutes, and a machine that loses workers has a lower score already."""
AT_LEAST_16_BITS = ("fp16", "bf16", "tf32", "fp32", "fp64")
"""Precisions of at least 16 bits, by the names of their ceilings."""


@dataclass(frozen=True)
class Facts:
    """The facts about a search that the rules check."""

    settings: AutomlSettings
    members: Sequence[TrainedJob]
    candidates: Sequence[CandidateHistory]
    durations_s: Mapping[int, float]
    """The duration of each worker that was not lost, by worker number from 1."""
    was_paused: bool
    """Whether interruptions were subtracted from these."""
    error: float | None
    ending: SearchEnding | None
    converged: bool | None
    variation: float | None
    """How much the score varies in the last fifth of the time."""


@dataclass(frozen=True)
class ValidityRule:
    """A rule for valid results. ``broken`` returns the reason if it is not met, else None."""

    id: str
    title: str
    broken: Callable[[Facts], str | None]


def _search(facts: Facts) -> str | None:
    return "it is a replay: nothing was searched" if facts.settings.search.ledger else None


def _ended(facts: Facts) -> str | None:
    """A search may end before its time once it took an hour and its score has converged."""
    if facts.ending is None:
        return "it has not finished"
    if facts.ending == "planned":
        return None
    missing = [reason for reason in (_hour(facts), _not_converged(facts)) if reason]
    if not missing:
        return None
    ended = "it was stopped" if facts.ending == "stopped" else "it ended as converged"
    return f"{ended} before its time: {'; '.join(missing)}"


def _not_converged(facts: Facts) -> str | None:
    if facts.converged:
        return None
    if facts.variation is None:
        return "it is too short to tell whether its score has converged"
    return (
        f"its score has not converged: it varies by {percent(facts.variation)} in the last fifth "
        f"of the time, and less than {percent(MAX_VARIATION)} is converged"
    )


def _hour(facts: Facts) -> str | None:
    """Check each worker separately: two workers in sequence do not make a longer search."""
    durations_s = facts.durations_s or {1: 0.0}
    short_s = {
        worker: duration_s
        for worker, duration_s in durations_s.items()
        if duration_s < MIN_DURATION_S - _CLOCK_S
    }
    if not short_s:
        return None
    worker, shortest_s = min(short_s.items(), key=lambda item: item[1])
    took = f"worker {worker} took {seconds(shortest_s)}"
    if len(facts.members) == 1:
        took = f"it took {seconds(shortest_s)}"
    elif len(short_s) == len(durations_s):
        took = f"no worker took longer than {seconds(max(short_s.values()))}"
    if facts.was_paused:
        took += f", of its interruptions only {seconds(MAX_PAUSE_S)} included"
    return f"{took}, and a result takes 1 hour at least"


def _precision(facts: Facts) -> str | None:
    names = {job.started.ceiling_precision for job in facts.members if job.started}
    if not names or None in names:
        return "the record does not say in which precision it computed"
    low = sorted(name for name in names if name and name not in AT_LEAST_16_BITS)
    return f"it computed in {', '.join(low)}, and 16 bits are the least" if low else None


def _error(facts: Facts) -> str | None:
    limit = min(facts.settings.search.error, MAX_ERROR_IN_TEXT)
    if facts.error is None:
        return "no model was evaluated"
    if facts.error > limit + _ROUNDING:
        return f"the best error is {facts.error:.4g}, and at most {limit:g} is valid"
    return None


def _pretrained(facts: Facts) -> str | None:
    known = {history.begun.candidate for history in facts.candidates if history.trained}
    for history in facts.candidates:
        if history.begun.inherited and history.begun.parent not in known:
            return f"{history.begun.candidate} starts from weights that this search did not train"
    return None


VALIDITY: tuple[ValidityRule, ...] = (
    ValidityRule("search", "it is a search", _search),
    ValidityRule("ended", "it finished, or was ended once converged", _ended),
    ValidityRule("hour", "at least 1 hour", _hour),
    ValidityRule("precision", "at least 16 bits", _precision),
    ValidityRule("error", "the best model's error is within the limit", _error),
    ValidityRule("pretrained", "no pretrained weights", _pretrained),
)


def verdict(
    setup: SearchSetup,
    members: Sequence[TrainedJob],
    candidates: Sequence[CandidateHistory],
    *,
    durations_s: Mapping[int, float],
    was_paused: bool,
    error: float | None,
    ending: SearchEnding | None,
    converged: bool | None,
    variation: float | None,
) -> AiperfVerdict:
    """Return whether a search is a valid result by AIPerf's rules, and why not otherwise."""
    facts = Facts(
        setup.settings,
        members,
        candidates,
        durations_s=durations_s,
        was_paused=was_paused,
        error=error,
        ending=ending,
        converged=converged,
        variation=variation,
    )
    broken = {rule.id: reason for rule in VALIDITY if (reason := rule.broken(facts))}
    differences = deviations(setup)
    conforms = not any(is_violation(difference) for difference in differences)
    return AiperfVerdict(valid=conforms and not broken, broken=broken, deviations=differences)


def is_violation(deviation: Deviation) -> bool:
    """Whether it differs from what the paper fixes and a setting would conform."""
    return deviation.fixed and deviation.conforms is not None
