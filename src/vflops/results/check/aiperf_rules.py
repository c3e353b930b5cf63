"""Rules of AIPerf: what makes a search a result, each by itself, as its score has judged it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.locations import job_file, noted, of_candidate
from vflops.results.check.rule import Outcome
from vflops.results.score.aiperf_conformance import LEAST_S, SIXTEEN_BITS
from vflops.results.score.score_file import SearchScore
from vflops.results.score.search_score import search_scores
from vflops.results.score.search_text import most_error
from vflops.results.score.search_workers import searches, story_of
from vflops.units import seconds

_NONE = Outcome("not applicable", "nothing was searched in this run")
_Fault = Callable[[SearchScore], str | None]
_Place = Callable[[Sequence[TrainedJob], SearchScore], str]
"""Where the workers of a search say what it is judged by."""


def _each(contents: Contents, fault: _Fault, place: _Place, words: str) -> Outcome:
    scores = contents.once(search_scores)
    if not scores:
        return _NONE
    for members, score in zip(searches(contents), scores, strict=True):
        found = fault(score)
        if found:
            return Outcome("fail", found, place(members, score))
    return Outcome("pass", words)


def _broken(rule: str) -> _Fault:
    """Why one of the score's own rules is broken."""
    return lambda score: score.aiperf.broken.get(rule)


def duration(contents: Contents) -> Outcome:
    """A result takes an hour at least."""
    return _each(contents, _broken("hour"), _shortest, f"{seconds(LEAST_S)} or more")


def _shortest(members: Sequence[TrainedJob], score: SearchScore) -> str:
    """The last event of the worker that searched for the shortest time."""
    lost = {each.job for each in score.lost_workers}
    spans = zip(members, story_of(members).spans_s, strict=True)
    own = [(s[1] - s[0] if s else 0.0, each) for each, s in spans if each.record.job not in lost]
    _, worker = min(own or [(0.0, members[0])], key=lambda each: each[0])
    events = [event for log in worker.logs for event in log.events]
    return events[-1].source if events else job_file(worker.record)


def precision(contents: Contents) -> Outcome:
    """Nothing was computed in less than 16 bits."""
    return _each(contents, _broken("precision"), _lowest, "16 bits or more")


def _lowest(members: Sequence[TrainedJob], score: SearchScore) -> str:
    """Where a worker says that it computed in less, or does not say in what."""
    told = ((each.started.ceiling_precision if each.started else None, each) for each in members)
    return noted(next((each for name, each in told if name not in SIXTEEN_BITS), members[0]), "job")


def error(contents: Contents) -> Outcome:
    """The best model errs seldom enough, whatever more the settings allow."""
    limits = ", ".join(f"{most_error(each):g}" for each in contents.once(search_scores))
    return _each(contents, _broken("error"), _best, f"the best error is {limits} at most")


def _best(members: Sequence[TrainedJob], score: SearchScore) -> str:
    """The result of the best candidate; what the first worker was told where there is none."""
    won = (e for e in story_of(members).candidates if e.begun.candidate == score.winner)
    best = next(won, None)
    if best is None:
        return job_file(members[0].record)
    return of_candidate(members, best, ("candidate-trained",), {})


def new_weights(contents: Contents) -> Outcome:
    """Nothing was trained before: a search, no replay, and no weights from elsewhere."""
    words = "every weight was trained in this search"
    found = _each(contents, _broken("search"), _told, words)
    return (
        _each(contents, _broken("pretrained"), _heir, words) if found.verdict == "pass" else found
    )


def _told(members: Sequence[TrainedJob], score: SearchScore) -> str:
    return job_file(members[0].record)


def _heir(members: Sequence[TrainedJob], score: SearchScore) -> str:
    """Where the candidate began that has its weights from elsewhere: the reason opens with it."""
    reason = score.aiperf.broken["pretrained"]
    heirs = (e for e in story_of(members).candidates if reason.startswith(e.begun.candidate))
    return of_candidate(members, next(heirs), ("candidate",), {})


def table_iv(contents: Contents) -> Outcome:
    """Data and first network are those that table IV fixes; all other deviations are told."""

    def fault(score: SearchScore) -> str | None:
        for each in score.aiperf.deviations:
            if each.fixed and each.conforms is not None:
                return f"{each.what}: as published with {each.conforms}"
        return None

    scores = contents.once(search_scores)
    told = [each.what for score in scores[:1] for each in score.aiperf.deviations]
    return _each(contents, fault, _told, "as fixed, but for: " + "; ".join(told))
