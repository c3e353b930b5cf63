"""The score of an ensemble: the FLOPS of all its models, weighted by their joint quality."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.metrics import (
    capped_factor,
    epoch_ops,
    flops,
    mean,
    vflops_per_watt,
)
from vflops.metrics.quality import finite_quality_factor
from vflops.record.formats.job_events import Ensembled, OutOfBag
from vflops.record.readout.contents import Contents
from vflops.record.readout.job_nodes import nodes_by_job
from vflops.record.readout.timeline import Timeline
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.node_outliers import node_outliers
from vflops.results.score.node_power import node_scores, total_power, utilisation
from vflops.results.score.score_file import EnsembleScore, TrainingScore
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
    timeline = Timeline(members)
    starts = [timeline.start_s(member) for member in members]
    ends = [timeline.end_s(member) for member in members]
    end_s = max(ends)
    window_s = end_s - min(starts)
    ops = sum(score.speed.ops_training for score in scores if score.speed)
    is_known = all(score.speed for score in scores) and window_s > 0
    rate = flops(ops=ops, time_s=window_s) if is_known else None
    valid = None if rate is None or factor is None else rate * factor
    window = (min(starts), end_s)
    nodes = node_scores(contents.folder, timeline, window, contents.telemetry)
    power = total_power(nodes, window_s)
    planned = [
        job
        for job in contents.training_jobs
        if (job.record.workload, job.record.repeat) == (ensembled.workload, ensembled.repeat)
    ]
    job_nodes = nodes_by_job(contents, planned)
    out_of_bag = [
        event.payload(OutOfBag).quality
        for member in members
        for event in contents.history.events("out-of-bag", member.record.job)[-1:]
    ]
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
        mean_quality=mean([score.quality.achieved or 0.0 for score in scores]),
        out_of_bag=mean(out_of_bag) if out_of_bag else None,
        # Models may also have waited in a queue: one started after another had finished.
        waves=contents.folder.record.settings.bagging.waves or max(starts) >= min(ends),
        started_apart_s=round(max(starts) - min(starts), 6),
        window_s=round(window_s, 6),
        ops_training=ops,
        flops=rate,
        flops_epoch=_epoch_flops(members, scores) if is_known else None,
        vflops=valid,
        vflops_capped=None if rate is None else rate * capped_factor(factor),
        clock_corrected_s=round(timeline.corrected_s, 6),
        clock_unknown=timeline.jobs_without_clock,
        nodes=nodes,
        power=power,
        vflops_per_watt=None
        if valid is None
        else vflops_per_watt(vflops=valid, power_w=power.power_w),
        utilisation=utilisation(nodes),
        nodes_named=node_outliers(members, job_nodes),
        twins=twins_score(planned, job_nodes),
        task=contents.once(tasks)[record.job].kind,
    )


def training_window_s(members: Sequence[TrainedJob]) -> float:
    """Return the seconds from the first step of any model to the end of the last model's training.

    The clocks of the nodes are corrected by their offsets at the start of the models.
    """
    timeline = Timeline(members)
    ends = [timeline.end_s(member) for member in members]
    return max(ends) - min(timeline.start_s(member) for member in members)


def _epoch_flops(members: Sequence[TrainedJob], scores: Sequence[TrainingScore]) -> float | None:
    """Return the FLOPS of HPC AI500 V3.0, eq. 4 and 6.

    These are the operations of one epoch of all models over the epoch time of the slowest model.
    """
    epoch_s = max((_epoch_s(member) for member in members), default=0.0)
    work = scores[0].work
    if work is None or epoch_s <= 0:
        return None
    ops = epoch_ops(
        ops_per_sample=work.ops_total, samples=members[0].record.data.train, models=len(members)
    )
    return flops(ops=ops, time_s=epoch_s)


def _epoch_s(member: TrainedJob) -> float:
    """Return the seconds of work per epoch, without steps that compiled kernels."""
    samples = member.samples_trained + member.samples_redone - member.samples_compiling
    return member.work_s * member.record.data.train / samples if samples > 0 else 0.0
