"""The rule of twins: pairs of models with one sample and one seed came to the same."""

from __future__ import annotations

from vflops.record.readout.contents import Contents
from vflops.record.readout.job_nodes import job_locations
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.findings import Verdict
from vflops.results.check.locations import noted
from vflops.results.check.rule import Outcome
from vflops.results.score.figure_text import count, twin_pair
from vflops.results.score.twins import twins_score

_WORST: tuple[tuple[str, Verdict], ...] = (("differ", "fail"), ("cannot tell", "cannot tell"))
_SHOWN = 3


def twins(contents: Contents) -> Outcome:
    """Every pair agrees; one that differs fails, one that cannot be told leaves that open."""
    ensembles: dict[tuple[str, int], list[TrainedJob]] = {}
    for each in contents.trained:
        ensembles.setdefault((each.record.workload, each.record.repeat), []).append(each)
    found = [
        (pair, members[0])
        for members in ensembles.values()
        if (score := twins_score(members, job_locations(contents, members)))
        for pair in score.pairs
    ]
    if not found:
        return Outcome("not applicable", "no twins in this run")
    for kind, verdict in _WORST:
        own = [(pair, first) for pair, first in found if pair.verdict == kind]
        told = [twin_pair(pair, first.record.goal.quality) for pair, first in own]
        if told:
            words = "; ".join(told[:_SHOWN]) + (" …" if len(told) > _SHOWN else "")
            return Outcome(verdict, words, noted(own[0][1], "finished"))
    return Outcome("pass", f"{count(len(found), 'pair')}, each with the same weights and qualities")
