"""Rules of AIPerf: what makes a search a result (`vflops.score.aiperf`), each by itself."""

from __future__ import annotations

from collections.abc import Callable

from vflops.check.published import AIPERF
from vflops.check.rule import Outcome
from vflops.score.contents import Contents
from vflops.score.record import SearchScore
from vflops.score.search import search_scores
from vflops.units import seconds

_NONE = Outcome("not applicable", "nothing was searched in this run")
_CLOCK_S = 1.0
"""How far two clocks may see the same hour differently."""
_MORPHISM = "search.inherit=false"
"""A morphed network keeps its parent's function, so it may keep its weights: told, no fault."""


def _each(
    contents: Contents, fault: Callable[[SearchScore], Outcome | None], words: str
) -> Outcome:
    scores = contents.once(search_scores)
    if not scores:
        return _NONE
    found = (fault(each) for each in scores)
    return next((each for each in found if each), Outcome("pass", words))


def duration(contents: Contents) -> Outcome:
    """A result takes an hour at least."""

    def fault(score: SearchScore) -> Outcome | None:
        if score.duration_s >= AIPERF.least_s - _CLOCK_S:
            return None
        words = f"it took {seconds(score.duration_s)}, {seconds(AIPERF.least_s)} are the least"
        return Outcome("fail", words)

    return _each(contents, fault, f"{seconds(AIPERF.least_s)} or more")


def error(contents: Contents) -> Outcome:
    """The best model errs seldom enough, whatever limit the settings name."""

    def fault(score: SearchScore) -> Outcome | None:
        if score.error is None:
            return Outcome("cannot tell", "no model was evaluated")
        if score.error > AIPERF.most_error:
            words = f"the best error is {score.error:.4g}, {AIPERF.most_error:g} is the most"
            return Outcome("fail", words)
        return None

    return _each(contents, fault, f"the best error is {AIPERF.most_error:g} at most")


def new_weights(contents: Contents) -> Outcome:
    """Nothing was trained before: a search, no replay, and no weights from elsewhere."""

    def fault(score: SearchScore) -> Outcome | None:
        if score.replay:
            return Outcome("fail", "it is a replay: nothing was searched")
        known = {each.candidate for each in score.candidates if each.state == "trained"}
        for each in score.candidates:
            if each.inherited and each.parent not in known:
                words = "starts from weights that this search did not train"
                return Outcome("fail", f"{each.candidate} {words}")
        return None

    return _each(contents, fault, "every weight was trained in this search")


def table_iv(contents: Contents) -> Outcome:
    """Data, first network, searcher and tuning are those that table IV fixes."""

    def fault(score: SearchScore) -> Outcome | None:
        for each in score.aiperf.deviations:
            if each.conforms not in (None, _MORPHISM):
                return Outcome("fail", f"{each.what}: as published with {each.conforms}")
        return None

    scores = contents.once(search_scores)
    told = [each.what for score in scores[:1] for each in score.aiperf.deviations]
    return _each(contents, fault, "as fixed, but for: " + "; ".join(told))
