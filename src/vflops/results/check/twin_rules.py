"""The rule for twins: pairs of models that share sample and seed give the same results."""

from __future__ import annotations

from vflops.record.readout.contents import Contents
from vflops.record.readout.job_nodes import nodes_by_job
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.findings import Verdict
from vflops.results.check.locations import event_location
from vflops.results.check.rule import Outcome
from vflops.results.score.figure_text import twin_pair
from vflops.results.score.twins import twins_score
from vflops.units import count

_BAD_VERDICTS: tuple[tuple[str, Verdict], ...] = (
    ("differ", "fail"),
    ("cannot tell", "cannot tell"),
)
_MAX_NAMED = 3


def check_twins(contents: Contents) -> Outcome:
    """Fail if a pair differs; the verdict is "cannot tell" if a pair cannot be compared."""
    ensembles: dict[tuple[str, int], list[TrainedJob]] = {}
    for job in contents.training_jobs:
        ensembles.setdefault((job.record.workload, job.record.repeat), []).append(job)
    pairs = [
        (pair, members[0])
        for members in ensembles.values()
        if (score := twins_score(members, nodes_by_job(contents, members)))
        for pair in score.pairs
    ]
    if not pairs:
        return Outcome("not applicable", "no twins in this run")
    for kind, verdict in _BAD_VERDICTS:
        matching = [(pair, first) for pair, first in pairs if pair.verdict == kind]
        texts = [twin_pair(pair, first.record.goal.quality) for pair, first in matching]
        if texts:
            evidence = "; ".join(texts[:_MAX_NAMED]) + (" …" if len(texts) > _MAX_NAMED else "")
            return Outcome(verdict, evidence, event_location(matching[0][1], "finished"))
    return Outcome("pass", f"{count(len(pairs), 'pair')}, each with the same weights and qualities")
