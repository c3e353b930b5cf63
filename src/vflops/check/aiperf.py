"""Rules of AIPerf: what makes a search a result, each by itself, as its score has judged it."""

from __future__ import annotations

from collections.abc import Callable

from vflops.check.rule import Outcome
from vflops.score.aiperf import LEAST_S
from vflops.score.contents import Contents
from vflops.score.record import SearchScore
from vflops.score.search import search_scores
from vflops.score.search_words import most_error
from vflops.units import seconds

_NONE = Outcome("not applicable", "nothing was searched in this run")


def _each(contents: Contents, fault: Callable[[SearchScore], str | None], words: str) -> Outcome:
    scores = contents.once(search_scores)
    if not scores:
        return _NONE
    found = (fault(each) for each in scores)
    return next((Outcome("fail", each) for each in found if each), Outcome("pass", words))


def _broken(*rules: str) -> Callable[[SearchScore], str | None]:
    """The first of the score's own rules that is broken."""

    def fault(score: SearchScore) -> str | None:
        return next((score.aiperf.broken[id] for id in rules if id in score.aiperf.broken), None)

    return fault


def duration(contents: Contents) -> Outcome:
    """A result takes an hour at least."""
    return _each(contents, _broken("hour"), f"{seconds(LEAST_S)} or more")


def precision(contents: Contents) -> Outcome:
    """Nothing was computed in less than 16 bits."""
    return _each(contents, _broken("precision"), "16 bits or more")


def error(contents: Contents) -> Outcome:
    """The best model errs seldom enough, whatever more the settings allow."""
    limits = ", ".join(f"{most_error(each):g}" for each in contents.once(search_scores))
    return _each(contents, _broken("error"), f"the best error is {limits} at most")


def new_weights(contents: Contents) -> Outcome:
    """Nothing was trained before: a search, no replay, and no weights from elsewhere."""
    fault = _broken("search", "pretrained")
    return _each(contents, fault, "every weight was trained in this search")


def table_iv(contents: Contents) -> Outcome:
    """Data and first network are those that table IV fixes; all other deviations are told."""

    def fault(score: SearchScore) -> str | None:
        for each in score.aiperf.deviations:
            if each.fixed and each.conforms is not None:
                return f"{each.what}: as published with {each.conforms}"
        return None

    scores = contents.once(search_scores)
    told = [each.what for score in scores[:1] for each in score.aiperf.deviations]
    return _each(contents, fault, "as fixed, but for: " + "; ".join(told))
