"""The score of an ensemble: what its models do in the time of all of them, and are worth."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.metrics import epoch_ops, flops, mean, quality_factor, vflops_per_watt
from vflops.record.formats.job import Ensembled, OutOfBag
from vflops.record.readout.contents import Contents
from vflops.record.readout.job_nodes import nodes_by_job
from vflops.record.readout.timeline import Timeline
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.node_outliers import node_outliers
from vflops.results.score.node_power import all_power, node_scores, utilisation
from vflops.results.score.score_file import EnsembleScore, TrainingScore
from vflops.results.score.twins import twins_score


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
    members: Sequence[TrainedJob],
    scores: Sequence[TrainingScore],
) -> EnsembleScore:
    record = members[0].record
    goal = record.goal
    achieved = found.sizes[-1].quality
    worth = quality_factor(
        achieved=achieved, target=goal.target, exponent=goal.exponent, better=goal.better
    )
    timeline = Timeline(members)
    starts = [timeline.start_s(member) for member in members]
    ends = [timeline.end_s(member) for member in members]
    end_s = max(ends)
    window_s = end_s - min(starts)
    done = sum(score.speed.ops_training for score in scores if score.speed)
    known = all(score.speed for score in scores) and window_s > 0
    rate = flops(ops=done, time_s=window_s) if known else None
    worthy = None if rate is None else rate * worth
    nodes = node_scores(contents.folder, timeline, (min(starts), end_s))
    power = all_power(nodes, window_s)
    planned = [
        each
        for each in contents.trained
        if (each.record.workload, each.record.repeat) == (found.workload, found.repeat)
    ]
    job_nodes = nodes_by_job(contents, planned)
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
        # Also where a queue let models wait: one's first step came after another's last.
        waves=contents.folder.record.settings.bagging.waves or max(starts) >= min(ends),
        started_apart_s=round(max(starts) - min(starts), 6),
        window_s=round(window_s, 6),
        ops_training=done,
        flops=rate,
        flops_epoch=_published(members, scores) if known else None,
        vflops=worthy,
        clock_corrected_s=round(timeline.corrected_s, 6),
        clock_unknown=timeline.unknown,
        nodes=nodes,
        power=power,
        vflops_per_watt=None
        if worthy is None
        else vflops_per_watt(vflops=worthy, power_w=power.power_w),
        utilisation=utilisation(nodes),
        nodes_named=node_outliers(members, job_nodes),
        twins=twins_score(planned, job_nodes),
    )


def window(members: Sequence[TrainedJob]) -> float:
    """Seconds from the first step of the first model to the end of the last one's training.

    Their nodes' clocks are corrected by what they were off when the models started.
    """
    timeline = Timeline(members)
    ends = [timeline.end_s(member) for member in members]
    return max(ends) - min(timeline.start_s(member) for member in members)


def _published(members: Sequence[TrainedJob], scores: Sequence[TrainingScore]) -> float | None:
    """Operations of an epoch of all models over the time of the slowest model's epoch."""
    epoch_s = max((_epoch_s(member) for member in members), default=0.0)
    work = scores[0].work
    if work is None or epoch_s <= 0:
        return None
    ops = epoch_ops(
        ops_per_sample=work.ops_total, samples=members[0].record.data.train, models=len(members)
    )
    return flops(ops=ops, time_s=epoch_s)


def _epoch_s(member: TrainedJob) -> float:
    """Seconds of work an epoch; steps that compiled are in neither."""
    done = member.samples_trained + member.samples_redone - member.samples_compiling
    return member.work_s * member.record.data.train / done if done > 0 else 0.0
