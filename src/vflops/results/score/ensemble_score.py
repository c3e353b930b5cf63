"""The score of an ensemble: the FLOPS of all its models, weighted by their joint quality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from vflops.metrics import (
    capped_factor,
    flops,
    mean,
    time_to_quality,
    vflops_per_watt,
)
from vflops.metrics.quality import finite_quality_factor
from vflops.record.formats.job import Goal
from vflops.record.formats.job_events import Ensembled, OutOfBag
from vflops.record.readout.contents import Contents
from vflops.record.readout.job_nodes import nodes_by_job
from vflops.record.readout.timeline import Timeline
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.loss_score import loss_score
from vflops.results.score.node_outliers import node_outliers
from vflops.results.score.node_power import node_scores, total_power, utilisation
from vflops.results.score.scale_score import models_at_once, scale_score
from vflops.results.score.score_file import EnsembleMoment, EnsembleScore, TrainingScore
from vflops.results.score.twins import twins_score
from vflops.results.task.closed_tasks import tasks


def ensemble_scores(
    contents: Contents, scores: Sequence[TrainingScore]
) -> tuple[EnsembleScore, ...]:
    """Return one score per ensemble, in the order in which predictions were combined."""
    newest: dict[tuple[str, int], Ensembled] = {}
    for event in contents.history.events("ensemble"):
        ensembled = event.payload(Ensembled)
        newest[ensembled.workload, ensembled.repeat] = ensembled
    by_job = {score.job: score for score in scores}
    trained = {job.record.job: job for job in contents.training_jobs}
    return tuple(
        _score(
            contents,
            ensembled,
            [trained[job] for job in ensembled.jobs],
            [by_job[job] for job in ensembled.jobs],
        )
        for ensembled in newest.values()
        if all(job in trained for job in ensembled.jobs)
    )


def _score(
    contents: Contents,
    ensembled: Ensembled,
    members: Sequence[TrainedJob],
    scores: Sequence[TrainingScore],
) -> EnsembleScore:
    record = members[0].record
    goal = record.goal
    achieved = ensembled.sizes[-1].quality
    factor = finite_quality_factor(
        achieved=achieved, target=goal.target, exponent=goal.exponent, better=goal.better
    )
    qualities = [score.quality.achieved or 0.0 for score in scores]
    timeline = Timeline(members)
    starts = [timeline.start_s(member) for member in members]
    ends = [timeline.end_s(member) for member in members]
    end_s = max(ends)
    window_s = end_s - min(starts)
    ops = sum(score.speed.ops_training for score in scores if score.speed)
    is_known = all(score.speed for score in scores) and window_s > 0
    rate = flops(ops=ops, time_s=window_s) if is_known else None
    published = None if rate is None or factor is None else rate * factor
    capped = None if rate is None else rate * capped_factor(factor)
    window = (min(starts), end_s)
    nodes = node_scores(contents.folder, timeline, window, contents.telemetry)
    power = total_power(nodes, window_s)
    planned = [
        job
        for job in contents.training_jobs
        if (job.record.workload, job.record.repeat) == (ensembled.workload, ensembled.repeat)
    ]
    job_nodes = nodes_by_job(contents, planned)
    moments = _moments(ensembled, members, timeline)
    reached = next((moment for moment in moments if _reaches(goal, moment.quality)), None)
    out_of_bag = [
        event.payload(OutOfBag).quality
        for member in members
        for event in contents.history.events("out-of-bag", member.record.job)[-1:]
    ]
    # Models may also have waited in a queue: one started after another had finished.
    in_waves = contents.folder.record.settings.bagging.waves or max(starts) >= min(ends)
    # In waves, M models do not train their epochs in the time of one.
    epoch = epoch_work(members, scores) if is_known and not in_waves else None
    return EnsembleScore(
        workload=ensembled.workload,
        repeat=ensembled.repeat,
        planned=ensembled.planned,
        jobs=ensembled.jobs,
        partial=len(ensembled.jobs) < ensembled.planned,
        bootstrap=record.bag.bootstrap if record.bag else "none",
        quality_name=goal.quality,
        target=goal.target,
        exponent=goal.exponent,
        achieved=achieved,
        penalty=factor,
        penalty_capped=capped_factor(factor),
        sizes=ensembled.sizes,
        mean_quality=mean(qualities),
        best_quality=_best(goal, qualities),
        beats=_beats(goal, achieved, qualities),
        loss=loss_score(goal, record.data, achieved),
        mean_loss=_mean_loss(scores),
        out_of_bag=mean(out_of_bag) if out_of_bag else None,
        waves=in_waves,
        started_apart_s=max(starts) - min(starts),
        window_s=window_s,
        ops_training=ops,
        flops=rate,
        flops_epoch=flops(ops=epoch[0], time_s=epoch[1]) if epoch else None,
        ops_epoch=epoch[0] if epoch else None,
        epoch_s=epoch[1] if epoch else None,
        vflops=published,
        vflops_capped=capped,
        clock_corrected_s=timeline.corrected_s,
        clock_unknown=timeline.jobs_without_clock,
        nodes=nodes,
        power=power,
        vflops_per_watt=None
        if published is None
        else vflops_per_watt(vflops=published, power_w=power.power_w),
        vflops_capped_per_watt=None
        if capped is None
        else vflops_per_watt(vflops=capped, power_w=power.power_w),
        utilisation=utilisation(nodes),
        nodes_named=node_outliers(members, job_nodes),
        twins=twins_score(planned, job_nodes),
        task=contents.once(tasks)[record.job].kind,
        scale=scale_score(
            members[0],
            scores[0].work,
            models=models_at_once(list(zip(starts, ends, strict=True))),
        ),
        moments=moments,
        time_to_quality_s=reached.time_s if reached else None,
        epochs_to_quality=reached.epoch if reached else None,
    )


def _moments(
    ensembled: Ensembled, members: Sequence[TrainedJob], timeline: Timeline
) -> tuple[EnsembleMoment, ...]:
    """Return when the last model had finished each evaluation, and the quality of all combined."""
    began_s = min(timeline.began_s(member) for member in members)
    evaluations_s = [timeline.evaluations_s(member) for member in members]
    return tuple(
        EnsembleMoment(
            time_s=max(_done_s(by_step, point.step) for by_step in evaluations_s) - began_s,
            step=point.step,
            epoch=point.epoch,
            quality=point.quality,
        )
        for point in ensembled.evaluations
    )


def _reaches(goal: Goal, quality: float) -> bool:
    """Whether ``quality`` reaches the target."""
    met_s = time_to_quality([1.0], [quality], target=goal.target, better=goal.better)
    return met_s is not None


def _done_s(evaluations_s: Mapping[int, float], step: int) -> float:
    """Return when a model had finished its evaluation at ``step``, or its last one before."""
    if step in evaluations_s:
        return evaluations_s[step]
    last = max((done for done in evaluations_s if done < step), default=None)
    if last is None:
        raise ValueError(f"the models were combined at step {step}, but one was not evaluated")
    return evaluations_s[last]


def training_window_s(members: Sequence[TrainedJob]) -> float:
    """Return the seconds from the first step of any model to the end of the last model's training.

    The clocks of the nodes are corrected by their offsets at the start of the models.
    """
    timeline = Timeline(members)
    ends = [timeline.end_s(member) for member in members]
    return max(ends) - min(timeline.start_s(member) for member in members)


def epoch_work(
    members: Sequence[TrainedJob], scores: Sequence[TrainingScore]
) -> tuple[int, float] | None:
    """Return operations and time, whose quotient is the FLOPS of HPC AI500 V3.0, eq. 4 and 6.

    These are the operations of one epoch of all models, and the epoch time of the slowest model.
    """
    epoch_s = max((_epoch_s(member) for member in members), default=0.0)
    work = scores[0].work
    if work is None or work.batch_ops is None or epoch_s <= 0:
        return None
    return len(members) * work.batch_ops.of_training(members[0].record.data.train), epoch_s


def _epoch_s(member: TrainedJob) -> float:
    """Return the seconds of work per epoch, without steps that compiled kernels."""
    samples = member.samples_trained + member.samples_redone - member.samples_compiling
    return member.work_s * member.record.data.train / samples if samples > 0 else 0.0


def _best(goal: Goal, qualities: Sequence[float]) -> float:
    return max(qualities) if goal.better == "higher" else min(qualities)


def _beats(
    goal: Goal, achieved: float, qualities: Sequence[float]
) -> Literal["best", "mean", "none"]:
    """Return whether the ensemble is better than the best model, or than the mean."""
    sign = 1 if goal.better == "higher" else -1
    if sign * achieved > sign * _best(goal, qualities):
        return "best"
    return "mean" if sign * achieved > sign * mean(qualities) else "none"


def _mean_loss(scores: Sequence[TrainingScore]) -> float | None:
    losses = [score.quality.loss.value if score.quality.loss else None for score in scores]
    known = [loss for loss in losses if loss is not None]
    return mean(known) if len(known) == len(scores) else None
