"""The score of a training job: its FLOPS, weighted by the quality that it reached."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.counting.conventions import SCORING_CONVENTION, convention
from vflops.counting.count import count
from vflops.metrics import (
    capped_factor,
    coefficient_of_variation,
    flops,
    mean,
    mfu,
    quality_factor,
    time_to_quality,
    vflops_per_watt,
)
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.roofline.analysis import Ceilings, measured_ceilings
from vflops.results.score.job_power import job_power
from vflops.results.score.node_power import jobs_sharing_meters
from vflops.results.score.parallelism import parallelism_score
from vflops.results.score.score_file import (
    MfuScore,
    QualityScore,
    RepeatScore,
    SpeedScore,
    Spread,
    TrainingScore,
    WorkScore,
)
from vflops.results.task.closed_tasks import tasks
from vflops.results.task.task import TaskKind


def training_scores(contents: Contents) -> tuple[TrainingScore, ...]:
    """Return one score per training job, in the order of the jobs."""
    machine = measured_ceilings(contents.measurements)
    sharing = jobs_sharing_meters(contents.folder, contents.training_jobs)
    return tuple(
        _score(contents, trained, machine, sharing.get(trained.record.job, ()))
        for trained in contents.training_jobs
    )


def repeat_scores(scores: Sequence[TrainingScore]) -> tuple[RepeatScore, ...]:
    """Return one score per workload that was repeated, with the variation over its repeats."""
    repeats = []
    single = [score for score in scores if score.model is None]
    for name in dict.fromkeys(score.workload for score in single):
        runs = [score for score in single if score.workload == name]
        ended = [score for score in runs if score.complete]
        if len(runs) > 1:
            repeats.append(_repeats(name, len(runs), ended))
    return tuple(repeats)


def _score(
    contents: Contents, trained: TrainedJob, machine: Ceilings, shared_with: tuple[int, ...]
) -> TrainingScore:
    record = trained.record
    work = work_score(record, contents.graphs)
    quality = _quality(trained)
    speed = _speed(trained, work, quality)
    power = job_power(contents, trained, shared_with)
    started = trained.started
    return TrainingScore(
        job=record.job,
        workload=record.workload,
        repeat=record.repeat,
        seed=record.seed,
        model=record.bag.model if record.bag else None,
        complete=contents.history.ended(record.job),
        attempts=len(trained.attempts),
        device=started.device_name if started else None,
        precision=started.precision if started else None,
        emulated=started.emulated if started else None,
        layers_of_8_bits=started.layers_of_8_bits if started else 0,
        ranks=record.ranks,
        batch=started.batch if started else None,
        synthetic=record.data.synthetic,
        skipped=record.data.skipped,
        data_facts=record.data.facts,
        work=work,
        samples_trained=trained.samples_trained,
        samples_redone=trained.samples_redone,
        samples_evaluated=trained.samples_evaluated,
        epochs=round(trained.samples_trained / record.data.train, 4) if record.data.train else 0.0,
        phases={name: round(seconds, 6) for name, seconds in trained.phases.items()},
        wall_s=round(trained.wall_s, 6),
        work_s=round(trained.work_s, 6),
        quality=quality,
        speed=speed,
        mfu=_mfu(trained, speed, machine),
        power=power,
        vflops_per_watt=vflops_per_watt(vflops=speed.vflops, power_w=power.power_w)
        if speed and speed.vflops is not None
        else None,
        kernels=trained.kernels,
        shared=parallelism_score(contents, trained),
        task=contents.once(tasks)[record.job].kind,
    )


def work_score(record: JobRecord, graphs: Sequence[Graph]) -> WorkScore | None:
    """Return the operations per sample: counted from the graph, or declared by the user."""
    if record.declared is not None:
        return WorkScore(
            source="declared",
            detail=record.declared.source,
            rules=None,
            rules_version=None,
            ops_forward=record.declared.ops_forward,
            ops_total=record.declared.ops_total,
        )
    for graph in graphs:
        if graph.model == record.workload:
            counted = count(graph, convention(SCORING_CONVENTION))
            return WorkScore(
                source="declared graph" if record.graph_declared else "counted",
                detail=f"graphs/{graph.model}.json",
                rules=counted.convention.id,
                rules_version=counted.convention.version,
                ops_forward=counted.total.forward // graph.batch,
                ops_total=counted.total.total // graph.batch,
            )
    return None


def _quality(trained: TrainedJob) -> QualityScore:
    goal, evaluations = trained.record.goal, trained.evaluations
    achieved = evaluations[-1].evaluated.quality if evaluations else None
    reached_s = time_to_quality(
        [evaluation.time_s for evaluation in evaluations],
        [evaluation.evaluated.quality for evaluation in evaluations],
        target=goal.target,
        better=goal.better,
    )
    epochs = next((e.evaluated.epoch for e in evaluations if e.time_s == reached_s), None)
    factor = None
    if achieved is not None:
        factor = quality_factor(
            achieved=achieved, target=goal.target, exponent=goal.exponent, better=goal.better
        )
    return QualityScore(
        name=goal.quality,
        better=goal.better,
        target=goal.target,
        profile_target=goal.profile_target,
        exponent=goal.exponent,
        achieved=achieved,
        tested=trained.tested.quality if trained.tested else None,
        penalty=factor,
        penalty_capped=None if factor is None else capped_factor(factor),
        time_to_quality_s=None if reached_s is None else round(reached_s, 6),
        epochs_to_quality=epochs,
    )


def _speed(trained: TrainedJob, work: WorkScore | None, quality: QualityScore) -> SpeedScore | None:
    if work is None or trained.work_s <= 0 or trained.wall_s <= 0:
        return None
    ops_training = trained.samples_trained * work.ops_total
    timed_samples = trained.samples_trained - trained.samples_compiling
    ops_evaluation = trained.samples_evaluated * work.ops_forward
    rate = flops(ops=timed_samples * work.ops_total, time_s=trained.work_s)
    evaluating_s = trained.phases["evaluation"]
    return SpeedScore(
        samples_per_s=timed_samples / trained.work_s,
        ops_training=ops_training,
        ops_evaluation=ops_evaluation,
        flops=rate,
        flops_evaluation=flops(ops=ops_evaluation, time_s=evaluating_s)
        if evaluating_s > 0
        else None,
        flops_whole=flops(ops=ops_training + ops_evaluation, time_s=trained.wall_s),
        vflops=None if quality.penalty is None else rate * quality.penalty,
        vflops_capped=None if quality.penalty_capped is None else rate * quality.penalty_capped,
    )


def _mfu(trained: TrainedJob, speed: SpeedScore | None, machine: Ceilings) -> MfuScore:
    """Return the share of the ceiling: the faster of matrix product and convolution × devices."""
    started = trained.started
    precision = started.ceiling_precision if started else None
    if speed is None or precision is None:
        reason = "nothing was trained"
        if trained.samples_trained:
            reason = "its precision is not known" if speed else "its operations are not known"
        return MfuScore(value=None, ceiling_flops=None, ceiling=None, reason=reason)
    peaks = {
        benchmark: peak for (benchmark, name), peak in machine.compute.items() if name == precision
    }
    if not peaks:
        reason = f"no ceiling was measured in {precision}"
        return MfuScore(value=None, ceiling_flops=None, ceiling=None, reason=reason)
    benchmark = max(peaks, key=lambda name: peaks[name])
    devices = trained.devices
    ceiling = peaks[benchmark] * devices
    return MfuScore(
        value=mfu(flops=speed.flops, ceiling_flops=ceiling),
        ceiling_flops=ceiling,
        ceiling=f"{precision} {benchmark}" + (f" × {devices}" if devices > 1 else ""),
        reason=None,
    )


def _repeats(name: str, planned: int, ended: Sequence[TrainingScore]) -> RepeatScore:
    reached = [score.quality.epochs_to_quality for score in ended]
    return RepeatScore(
        workload=name,
        planned=planned,
        complete=len(ended),
        reached=sum(epochs is not None for epochs in reached),
        quality=_spread([score.quality.achieved for score in ended]),
        flops=_spread([score.speed.flops if score.speed else None for score in ended]),
        vflops=_spread([score.speed.vflops if score.speed else None for score in ended]),
        epochs_to_quality=_spread(reached),
        vflops_capped=_spread(
            [score.speed.vflops_capped if score.speed else None for score in ended]
        ),
        time_to_quality_s=_spread([score.quality.time_to_quality_s for score in ended]),
        task=_common_task(ended),
    )


def _common_task(scores: Sequence[TrainingScore]) -> TaskKind | None:
    """Return ``open`` if one of the repeats has an open task; None without repeats."""
    kinds = {score.task for score in scores}
    return "open" if "open" in kinds else "closed" if "closed" in kinds else None


def _spread(values: Sequence[float | None]) -> Spread | None:
    """Return mean and coefficient of variation; None for a single value or if one is missing."""
    known = [value for value in values if value is not None]
    if len(known) < 2 or len(known) < len(values) or mean(known) <= 0:
        return None
    return Spread(mean=mean(known), variation=coefficient_of_variation(known))
