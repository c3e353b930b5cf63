"""The score of a search as text: a sentence, its figures, and the best candidates."""

from __future__ import annotations

from vflops.results.score import figure_text
from vflops.results.score.aiperf_conformance import is_violation
from vflops.results.score.aiperf_table import MAX_ERROR_IN_TEXT
from vflops.results.score.score_file import CandidateScore, LostWorker, SearchScore
from vflops.units import count, percent, quantity, seconds

CANDIDATES = (
    "candidate",
    "accuracy",
    "epochs",
    "batch",
    "kernel",
    "parameters",
    "per sample",
    "from",
)
UNDEFINED_REGULATED = "not defined for an error of 0"
"""AIPerf's equation 3 is for errors between 0 and 1: the logarithm of 0 is infinite."""
_STILL_VARIES = ", but by the whole record it still varied"
MAX_CANDIDATES = 10
"""The maximum number of candidates that a terminal shows."""


def search_line(search: SearchScore) -> str:
    """Return the result of a search in one line."""
    if not has_started(search):
        return "no candidate was started"
    verb = "trained again" if search.replay else "searched"
    workers = count(search.workers, "worker")
    if search.lost_workers:
        workers += f", {len(search.lost_workers)} of them lost"
    summary = f"{verb} {architectures(search)}{_cut_short(search)}"
    summary += f" in {seconds(search.duration_s)} with {workers}"
    if ending := early_end(search):
        summary += f", {ending}"
    if search.ops_per_s is None:
        return f"{summary}: no step was completed"
    return f"{summary}: {_speed(search)}, {_result(search)}"


def early_end(search: SearchScore) -> str:
    """Return that a search ended before its time, and when; empty if it did not."""
    if search.ending not in ("converged", "stopped"):
        return ""
    hours, minutes = divmod(round(search.duration_s / 60), 60)
    after = f"{hours} h {minutes:02d} min" if hours else seconds(search.duration_s)
    if search.ending == "converged":
        return f"ended when converged after {after}{'' if search.converged else _STILL_VARIES}"
    return (
        f"stopped by the user after {after} and had{' ' if search.converged else ' not '}converged"
    )


def has_started(search: SearchScore) -> bool:
    """Whether a candidate was started or could not be built, or a worker was lost."""
    return bool(search.candidates or search.unbuilt or search.lost_workers)


def _speed(search: SearchScore) -> str:
    """Return the best operations per second, and those at the end if they differ."""
    peak, last = quantity(search.ops_per_s, "OPS"), quantity(search.last_ops_per_s, "OPS")
    return peak if peak == last else f"{peak} at its peak and {last} at the end"


def _cut_short(search: SearchScore) -> str:
    """Return how many candidates were trained to the end, if not all were."""
    trained = sum(candidate.state == "trained" for candidate in search.candidates)
    if trained == len(search.candidates):
        return ""
    started = count(len(search.candidates), "candidate")
    return f" ({started}, {trained} trained to the end)"


def aiperf_line(search: SearchScore) -> str:
    """Return whether a search is a valid result by AIPerf's rules, or why not.

    Only ``vflops check --rules aiperf`` also holds the record of the candidates against them.
    """
    if search.aiperf.valid:
        return "valid by AIPerf's limits and settings"
    return f"not a valid result by AIPerf's rules: {'; '.join(aiperf_reasons(search))}"


def aiperf_reasons(search: SearchScore) -> tuple[str, ...]:
    """Return why a search is not valid by AIPerf's rules, including settings that it fixes."""
    fixed = [item.what for item in search.aiperf.deviations if is_violation(item)]
    return (*search.aiperf.reasons, *fixed)


def aiperf_reason(search: SearchScore) -> str:
    """Return the first reason why a search is not valid by AIPerf's rules, and how many follow."""
    reasons = aiperf_reasons(search)
    if not reasons:
        return "the search is not a valid result"
    return reasons[0] + (f", and {len(reasons) - 1} more" if len(reasons) > 1 else "")


def architectures(search: SearchScore) -> str:
    """Return the number of different architectures, which several candidates may share."""
    return count(len({candidate.digest for candidate in search.candidates}), "architecture")


def search_rows(search: SearchScore) -> list[tuple[str, str]]:
    """Return the figures of a search as names and texts, the most quoted ones first."""
    rows = [
        (
            "OPS",
            f"{quantity(search.ops_per_s, 'OPS')} (rules {search.rules}), {_convergence(search)}",
        ),
        ("regulated score", regulated(search)),
        ("last sample", _last(search)),
        ("best model", _best(search)),
        ("candidates", _states(search)),
        ("search", _method(search)),
        ("idle", idle(search)),
        ("OPS/W", _per_watt(search)),
    ]
    if search.utilisation is not None:
        rows.append(("utilisation", f"{search.utilisation:.1f} % of the accelerators' time"))
    if search.prediction_error is not None:
        rows.append(("prediction", f"accuracies predicted with a mean error of {_error(search)}"))
    if ending := early_end(search):
        rows.append(("end", ending))
    rows += [("lost", lost_line(worker)) for worker in search.lost_workers]
    rows.append(("AIPerf", aiperf_line(search)))
    rows += [("", f"unlike the paper: {line}") for line in deviations(search)]
    rows += [("clock", line) for line in clocks(search)]
    return rows


def lost_line(worker: LostWorker) -> str:
    """Return what was lost with a worker that failed too often."""
    attempts = count(worker.attempts, "attempt")
    lost = f"the worker of job {worker.job} was given up after {attempts} ({worker.reason})"
    counted = f"its {count(worker.trained, 'trained candidate')} count"
    counted += "s" if worker.trained == 1 else ""
    unfinished = f", no result for {', '.join(worker.candidates)}" if worker.candidates else ""
    return f"{lost}: {counted}{unfinished}"


def deviations(search: SearchScore) -> list[str]:
    """Return the deviations from AIPerf's search, with the settings that conform."""
    return [
        f"{item.what} ({item.conforms} conforms)" if item.conforms else item.what
        for item in search.aiperf.deviations
    ]


def clocks(search: SearchScore) -> list[str]:
    """Return remarks on faults and corrections of clocks."""
    lines = list(search.clock_faults)
    if search.clock_corrected_s:
        lines.append(f"nodes corrected by at most {figure_text.offset(search.clock_corrected_s)}")
    if search.clock_unknown:
        lines.append(
            f"unknown and not corrected for jobs {figure_text.numbers(search.clock_unknown)}"
        )
    return lines


def by_accuracy(search: SearchScore) -> list[CandidateScore]:
    """Return the candidates with an accuracy, the best first."""
    known = [candidate for candidate in search.candidates if candidate.accuracy is not None]
    return sorted(known, key=lambda candidate: (-(candidate.accuracy or 0.0), candidate.candidate))


def winner(search: SearchScore) -> str:
    """Return the name of the best candidate, with its state if it did not finish."""
    return next((_name(c) for c in by_accuracy(search) if c.candidate == search.winner), "—")


def _name(candidate: CandidateScore) -> str:
    name, state = candidate.candidate, candidate.state
    return name if state == "trained" else f"{name} ({state})"


def candidate_row(candidate: CandidateScore) -> tuple[str, ...]:
    """Return a candidate as a row with the columns of ``CANDIDATES``."""
    inherited = ", its weights" if candidate.inherited else ""
    return (
        _name(candidate),
        "" if candidate.accuracy is None else figure_text.number(candidate.accuracy),
        figure_text.number(candidate.epochs),
        str(candidate.batch),
        "" if candidate.kernel is None else str(candidate.kernel),
        f"{candidate.parameters:,}",
        quantity(candidate.ops_per_sample, "FLOP"),
        (candidate.parent or "the first network") + inherited,
    )


def max_error(search: SearchScore) -> float:
    """Return the largest valid error: the setting, but not more than in the paper's text."""
    return min(search.error_limit, MAX_ERROR_IN_TEXT)


def regulated(search: SearchScore) -> str:
    """Return −ln(error) · OPS with its formula, or why it is undefined."""
    value = regulated_value(search)
    if search.regulated is None:
        return value
    return f"{value} = −ln(error) · OPS, the largest of all moments"


def regulated_value(search: SearchScore) -> str:
    """Return −ln(error) · OPS, or why it is undefined."""
    return _regulated_at(search.regulated, search.error)


def _regulated_at(regulated: float | None, error: float | None) -> str:
    if error is None:
        return "— (nothing was evaluated)"
    return UNDEFINED_REGULATED if error <= 0 else quantity(regulated, "OPS")


def idle(search: SearchScore) -> str:
    """Return the share of time between candidates, and what it was spent on."""
    if search.idle_share is None:
        return "—"
    waited = f"{seconds(search.waited_s)} for proposals, {seconds(search.built_s)} for building"
    return f"{percent(search.idle_share)} of the workers' time between candidates: {waited}"


def _result(search: SearchScore) -> str:
    if search.error is None:
        return "nothing evaluated"
    error = f"best error {figure_text.number(search.error)}"
    return f"{error}, regulated score {regulated_value(search)}"


def _convergence(search: SearchScore) -> str:
    if search.converged is None:
        return "too short to tell whether it converged"
    if search.converged:
        return "converged: it varies by less than 2 % in the last fifth of the time"
    return "not converged: it varies by 2 % or more in the last fifth of the time"


def _last(search: SearchScore) -> str:
    regulated_last = _regulated_at(search.last_regulated, search.error)
    figures = f"{quantity(search.last_ops_per_s, 'OPS')}, regulated score {regulated_last}"
    return f"{figures} (as the published program reports it)"


def _best(search: SearchScore) -> str:
    if search.error is None:
        return "—"
    limit = f"at most {max_error(search):g} is valid"
    return f"error {figure_text.number(search.error)} ({limit}), {winner(search)}"


def _states(search: SearchScore) -> str:
    states = [candidate.state for candidate in search.candidates] + ["failed"] * len(search.unbuilt)
    unfinished = "unfinished by a lost worker" if search.lost_workers else "not finished"
    names = {"cut": "cut by the end", "training": unfinished}
    counts = [f"{states.count(state)} {names.get(state, state)}" for state in dict.fromkeys(states)]
    return f"{architectures(search)}; " + ", ".join(counts)


def _method(search: SearchScore) -> str:
    if search.replay:
        return "none: a replay of what another search trained"
    order = "in a fixed order" if search.ordered else "free, as published"
    weights = "inherited weights" if search.inherited else "new weights"
    return f"{search.searcher}, {order}, {weights}"


def _error(search: SearchScore) -> str:
    return figure_text.number(search.prediction_error or 0.0)


def _per_watt(search: SearchScore) -> str:
    if search.ops_per_watt is None:
        return f"— {figure_text.power(search.power)}"
    return f"{quantity(search.ops_per_watt, 'OPS/W')} at {figure_text.power(search.power)}"
