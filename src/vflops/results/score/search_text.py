"""A search as people write it: a sentence, its figures, and the best candidates."""

from __future__ import annotations

from vflops.results.score import figure_text
from vflops.results.score.aiperf_conformance import MOST_ERROR_OF_TEXT
from vflops.results.score.score_file import CandidateScore, LostWorker, SearchScore
from vflops.units import percent, quantity, seconds

CANDIDATES = (
    "candidate",
    "accuracy",
    "epochs",
    "batch",
    "kernel",
    "parameters",
    "a sample",
    "from",
)
MOST_CANDIDATES = 10
"""That a terminal shows."""


def search_line(search: SearchScore) -> str:
    """What a search came to, in one line."""
    if not begun(search):
        return "no candidate was begun"
    did = "trained again" if search.replay else "searched"
    workers = figure_text.count(search.workers, "worker")
    if search.lost_workers:
        workers += f", of which {len(search.lost_workers)} died for good"
    told = f"{did} {architectures(search)} in {seconds(search.duration_s)} with {workers}"
    if search.ops_per_s is None:
        return f"{told}: no step was completed"
    return f"{told}: {_speed(search)}, {_found(search)}"


def begun(search: SearchScore) -> bool:
    """Whether there is anything to tell of it: a candidate, or a worker that failed."""
    return bool(search.candidates or search.unbuilt or search.lost_workers)


def _speed(search: SearchScore) -> str:
    """The score and, where it was another at the end, that."""
    most, last = quantity(search.ops_per_s, "OPS"), quantity(search.last_ops_per_s, "OPS")
    return most if most == last else f"{most} at most and {last} at the end"


def aiperf_line(search: SearchScore) -> str:
    """Whether it is a result by AIPerf's rules, or why not."""
    if search.aiperf.valid:
        return "a valid result by AIPerf's rules"
    fixed = [each.what for each in search.aiperf.deviations if each.fixed and each.conforms]
    return f"no valid result by AIPerf's rules: {'; '.join([*search.aiperf.reasons, *fixed])}"


def architectures(search: SearchScore) -> str:
    """How many were tried: two candidates may be one, trained in two ways."""
    return figure_text.count(len({each.digest for each in search.candidates}), "architecture")


def search_rows(search: SearchScore) -> list[tuple[str, str]]:
    """A search's figures, a name and a text each, the ones that are quoted first."""
    rows = [
        ("OPS", f"{quantity(search.ops_per_s, 'OPS')} (rules {search.rules}), {_calm(search)}"),
        ("regulated score", regulated(search)),
        ("last sample", _last(search)),
        ("best model", _best(search)),
        ("candidates", _states(search)),
        ("search", _way(search)),
        ("idle", idle(search)),
        ("OPS/W", _per_watt(search)),
    ]
    if search.utilisation is not None:
        rows.append(("utilisation", f"{search.utilisation:.1f} % of the accelerators' time"))
    if search.prediction_error is not None:
        rows.append(("prediction", f"accuracies foretold with a mean error of {_error(search)}"))
    rows += [("lost", lost_line(each)) for each in search.lost_workers]
    rows.append(("AIPerf", aiperf_line(search)))
    rows += [("", f"unlike the paper: {line}") for line in deviations(search)]
    rows += [("clock", line) for line in clocks(search)]
    return rows


def lost_line(worker: LostWorker) -> str:
    """What went with a worker that was given up."""
    told = f"the worker of job {worker.job} was given up after "
    told += f"{figure_text.count(worker.attempts, 'attempt')} ({worker.reason})"
    kept = f"{figure_text.count(worker.trained, 'candidate')} of its count"
    begun = f", no result of {', '.join(worker.candidates)}" if worker.candidates else ""
    return f"{told}: {kept}{begun}"


def deviations(search: SearchScore) -> list[str]:
    """Where it is another search than AIPerf's, with the setting that conforms."""
    return [
        f"{each.what} ({each.conforms} conforms)" if each.conforms else each.what
        for each in search.aiperf.deviations
    ]


def clocks(search: SearchScore) -> list[str]:
    """What to know of the clocks that the times rest on."""
    lines = list(search.clock_faults)
    if search.clock_corrected_s:
        lines.append(f"nodes corrected by at most {figure_text.offset(search.clock_corrected_s)}")
    if search.clock_unknown:
        lines.append(
            f"not known, not corrected, of jobs {figure_text.numbers(search.clock_unknown)}"
        )
    return lines


def best(search: SearchScore) -> list[CandidateScore]:
    """The candidates with an accuracy, the best first."""
    known = [each for each in search.candidates if each.accuracy is not None]
    return sorted(known, key=lambda each: (-(each.accuracy or 0.0), each.candidate))


def winner(search: SearchScore) -> str:
    """The candidate whose error is the search's, marked where its training was not finished."""
    return next((_named(e) for e in best(search) if e.candidate == search.winner), "—")


def _named(each: CandidateScore) -> str:
    return each.candidate if each.state == "trained" else f"{each.candidate} ({each.state})"


def candidate_row(each: CandidateScore) -> tuple[str, ...]:
    """A candidate under the names of ``CANDIDATES``."""
    return (
        _named(each),
        "" if each.accuracy is None else figure_text.number(each.accuracy),
        figure_text.number(each.epochs),
        str(each.batch),
        "" if each.kernel is None else str(each.kernel),
        f"{each.parameters:,}",
        quantity(each.ops_per_sample, "FLOP"),
        (each.parent or "the first network") + (", its weights" if each.inherited else ""),
    )


def most_error(search: SearchScore) -> float:
    """Of a result that is valid: what was set, and never more than the paper's text allows."""
    return min(search.error_limit, MOST_ERROR_OF_TEXT)


def regulated(search: SearchScore) -> str:
    """−ln(error) · OPS with what it is made of, or why there is none."""
    if search.error is None:
        return "— (nothing was evaluated)"
    if search.error <= 0:
        return "— (no error is left: its logarithm is beyond any number)"
    return f"{quantity(search.regulated, 'OPS')} = −ln(error) · OPS, the largest of all moments"


def idle(search: SearchScore) -> str:
    """The time between candidates, and what of it is known."""
    if search.idle_share is None:
        return "—"
    waited = f"{seconds(search.waited_s)} for proposals, {seconds(search.built_s)} for building"
    return f"{percent(search.idle_share)} of the workers' time between candidates: {waited}"


def _found(search: SearchScore) -> str:
    if search.error is None:
        return "nothing evaluated"
    told = f"best error {figure_text.number(search.error)}"
    if search.regulated is None:
        return told
    return f"{told}, regulated score {quantity(search.regulated, '').strip()}"


def _calm(search: SearchScore) -> str:
    if search.converged is None:
        return "too short to tell whether it converged"
    if search.converged:
        return "converged: it varies by less than 2 % in the last fifth of the time"
    return "not converged: it varies by 2 % or more in the last fifth of the time"


def _last(search: SearchScore) -> str:
    figures = f"{quantity(search.last_ops_per_s, 'OPS')}, regulated "
    figures += quantity(search.last_regulated, "OPS")
    return f"{figures} (as the published program reports it)"


def _best(search: SearchScore) -> str:
    if search.error is None:
        return "—"
    limit = f"at most {most_error(search):g} is valid"
    return f"error {figure_text.number(search.error)} ({limit}), {winner(search)}"


def _states(search: SearchScore) -> str:
    states = [each.state for each in search.candidates] + ["failed"] * len(search.unbuilt)
    names = {"cut": "cut by the end", "training": "left by a dead worker"}
    told = [f"{states.count(state)} {names.get(state, state)}" for state in dict.fromkeys(states)]
    return f"{architectures(search)}; " + ", ".join(told)


def _way(search: SearchScore) -> str:
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
