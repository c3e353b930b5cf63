"""The score of an ensemble: what its models do in the time of all of them, and are worth."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.metrics import flops, mean, penalty
from vflops.record.events import Event, Log
from vflops.record.training import Ensembled, OutOfBag
from vflops.score.contents import Contents
from vflops.score.record import EnsembleScore, TrainingScore
from vflops.score.trained import Trained


def ensemble_scores(
    contents: Contents, scores: Sequence[TrainingScore]
) -> tuple[EnsembleScore, ...]:
    """One score an ensemble whose predictions were put together, in that order."""
    newest: dict[tuple[str, int], Ensembled] = {}
    for event in contents.history.events("ensemble"):
        found = event.payload(Ensembled)
        newest[found.workload, found.repeat] = found
    pairs = {each.job: each for each in scores}
    trained = {each.record.job: each for each in contents.trained}
    return tuple(
        _score(contents, each, [trained[job] for job in each.jobs], [pairs[j] for j in each.jobs])
        for each in newest.values()
        if all(job in trained for job in each.jobs)
    )


def _score(
    contents: Contents,
    found: Ensembled,
    members: Sequence[Trained],
    scores: Sequence[TrainingScore],
) -> EnsembleScore:
    record = members[0].record
    goal = record.goal
    achieved = found.sizes[-1].quality
    worth = penalty(
        achieved=achieved, target=goal.target, exponent=goal.exponent, better=goal.better
    )
    starts = _starts(members)
    window_s = window(members)
    done = sum(score.speed.ops_training for score in scores if score.speed)
    known = all(score.speed for score in scores) and window_s > 0
    rate = flops(ops=done, time_s=window_s) if known else None
    outside = [
        event.payload(OutOfBag).quality
        for member in members
        for event in contents.history.events("out-of-bag", member.record.job)[-1:]
    ]
    return EnsembleScore(
        workload=found.workload,
        repeat=found.repeat,
        planned=found.planned,
        jobs=found.jobs,
        partial=len(found.jobs) < found.planned,
        bootstrap=record.bag.bootstrap if record.bag else "none",
        quality_name=goal.quality,
        target=goal.target,
        exponent=goal.exponent,
        achieved=achieved,
        penalty=worth,
        sizes=found.sizes,
        mean_quality=mean([each.quality.achieved or 0.0 for each in scores]),
        out_of_bag=mean(outside) if outside else None,
        waves=contents.folder.record.settings.bagging.waves,
        started_apart_s=round(max(starts) - min(starts), 6),
        window_s=round(window_s, 6),
        ops_training=done,
        flops=rate,
        flops_epoch=_published(members, scores) if known else None,
        vflops=None if rate is None else rate * worth,
    )


def window(members: Sequence[Trained]) -> float:
    """Seconds from the first step of the first model to the last step of the last."""
    ends = [_last(member.logs, "finished").utc_s for member in members]
    return max(ends) - min(_starts(members))


def _starts(members: Sequence[Trained]) -> list[float]:
    return [_first(member.logs, "job").utc_s for member in members]


def _published(members: Sequence[Trained], scores: Sequence[TrainingScore]) -> float | None:
    """Operations of an epoch of all models over the time of the slowest model's epoch."""
    epoch_s = max(score.work_s / score.epochs for score in scores if score.epochs)
    work = scores[0].work
    if work is None or epoch_s <= 0:
        return None
    return flops(ops=len(members) * members[0].record.data.train * work.ops_total, time_s=epoch_s)


def _first(logs: Sequence[Log], kind: str) -> Event:
    return next(event for log in logs for event in log.events if event.kind == kind)


def _last(logs: Sequence[Log], kind: str) -> Event:
    return [event for log in logs for event in log.events if event.kind == kind][-1]
