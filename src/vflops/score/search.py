"""The score of a search: AIPerf's operations a second, and the same weighed by what was found."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import log

from vflops.automl.search.curve import predict
from vflops.automl.story import Search, Story
from vflops.metrics import mean
from vflops.record.training import JobRecord
from vflops.score.contents import Contents
from vflops.score.record import CandidateScore, SearchMoment, SearchScore
from vflops.score.training import SCORING_RULES
from vflops.workloads.automl.settings import AutomlSettings

MOMENTS = 100
"""Of a search that are looked at, evenly from its beginning to its end."""
_CALM_SHARE = 0.2
_CALM_SPREAD = 0.02
"""Converged: in the last fifth of the time the score varies by less than this."""


def search_scores(contents: Contents) -> tuple[SearchScore, ...]:
    """One score a search, in their order."""
    groups = groupby(contents.workers, key=lambda job: (job.record.workload, job.record.repeat))
    found = []
    for _, jobs in groups:
        members = list(jobs)
        search = Search([job.logs for job in members])
        found.append(_score(members[0].record, search))
    return tuple(found)


def _score(record: JobRecord, search: Search) -> SearchScore:
    settings = AutomlSettings.model_validate(record.settings)
    moments = _moments(search, settings.search.score_from_round)
    counted = [each for each in moments if each.counts]
    best = max(counted, key=lambda each: each.ops_per_s, default=None)
    best_regulated = max(
        (each for each in counted if each.regulated is not None),
        key=lambda each: each.regulated or 0.0,
        default=None,
    )
    trained = [story for story in search.candidates if story.trained is not None]
    winner = max(trained, key=lambda story: story.trained.accuracy, default=None)  # type: ignore[union-attr]
    span = search.span_s
    idle = sum(story.idle_s for story in search.candidates)
    whole_s = (span[1] - span[0]) if span else 0.0
    return SearchScore(
        workload=record.workload,
        repeat=record.repeat,
        seed=record.seed,
        workers=settings.search.workers,
        ranks=record.ranks,
        rules=SCORING_RULES,
        ordered=settings.ordered,
        searcher=settings.search.searcher,
        inherited=settings.search.inherit,
        duration_s=whole_s,
        ops=sum(story.ops for story in search.candidates),
        ops_per_s=best.ops_per_s if best else None,
        regulated=best_regulated.regulated if best_regulated else None,
        last_ops_per_s=moments[-1].ops_per_s if moments else None,
        last_regulated=moments[-1].regulated if moments else None,
        converged=_converged(counted),
        error=None if search.best_by(float("inf")) is None else 1 - _best(search),
        error_limit=settings.search.error,
        winner=winner.begun.candidate if winner else None,
        candidates=tuple(_candidate(story) for story in search.candidates),
        moments=tuple(moments),
        idle_share=idle / (whole_s * settings.search.workers) if whole_s else None,
        prediction_error=_prediction_error(trained),
        clock_faults=tuple(search.clock_faults),
    )


def _best(search: Search) -> float:
    return search.best_by(float("inf")) or 0.0


def _moments(search: Search, first_round: int) -> list[SearchMoment]:
    """The score at even steps of time; those after the rounds of a warm-up count."""
    if search.span_s is None:
        return []
    start_s, end_s = search.span_s
    warm_s = max(
        (each.ended_s or end_s for each in search.candidates if each.turn.round + 1 < first_round),
        default=start_s,
    )
    found = []
    for number in range(1, MOMENTS + 1):
        time_s = (end_s - start_s) * number / MOMENTS
        at_s = start_s + time_s
        ops = sum(story.ops_by(at_s) for story in search.candidates)
        best = search.best_by(at_s)
        rate = ops / time_s if time_s else 0.0
        found.append(
            SearchMoment(
                time_s=time_s,
                ops=ops,
                ops_per_s=rate,
                error=None if best is None else 1 - best,
                regulated=regulated(rate, best),
                trained=sum((s.ended_s or at_s + 1) <= at_s for s in search.candidates),
                counts=at_s >= warm_s and ops > 0,
            )
        )
    return found


def regulated(ops_per_s: float, accuracy: float | None) -> float | None:
    """−ln(error) · OPS; None where nothing was evaluated, or nothing is wrong any more."""
    if accuracy is None or accuracy >= 1:
        return None
    return -log(1 - accuracy) * ops_per_s


def _converged(moments: Sequence[SearchMoment]) -> bool | None:
    """Whether the score stood still at the end; None where there is no such end to look at."""
    last = moments[-round(MOMENTS * _CALM_SHARE) :]
    if len(last) < round(MOMENTS * _CALM_SHARE):
        return None
    rates = [each.ops_per_s for each in last]
    return (max(rates) - min(rates)) / mean(rates) < _CALM_SPREAD


def _prediction_error(stories: Sequence[Story]) -> float | None:
    """How far the way of predicting is from the truth, where that is known: of every candidate
    the accuracy of its last epoch is predicted from the first half of its epochs."""
    errors = []
    for story in stories:
        curve = [(max(round(epoch), 1), accuracy) for epoch, accuracy in story.curve]
        half = curve[: len(curve) // 2]
        if half:
            epoch, truth = curve[-1]
            errors.append(abs(predict(half, epoch).error(truth)))
    return mean(errors) if errors else None


def _candidate(story: Story) -> CandidateScore:
    trained = story.trained
    return CandidateScore(
        candidate=story.begun.candidate,
        worker=story.worker,
        parent=story.begun.parent,
        digest=story.begun.digest,
        state=story.state,
        accuracy=trained.accuracy if trained else max((q for _, q in story.curve), default=None),
        predicted=trained.predicted if trained else None,
        epochs=story.notes[-1].epoch if story.notes else 0.0,
        batch=story.begun.batch,
        kernel=trained.hyper.kernel if trained else None,
        parameters=story.begun.parameters,
        ops_per_sample=story.begun.ops_total,
        ops=story.ops,
        inherited=story.begun.inherited,
        waited_s=story.begun.waited_s,
        message=story.message,
    )
