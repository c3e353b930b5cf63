"""The score of a training job: its FLOPS, weighted by the quality that it reached."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.counting.conventions import EXECUTED_CONVENTION, convention
from vflops.counting.count import Count, count
from vflops.metrics import (
    capped_factor,
    flops,
    time_to_quality,
    vflops_per_watt,
)
from vflops.metrics.quality import finite_quality_factor
from vflops.record.formats.batch_ops import BatchOps
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.job_ceilings import job_ceilings
from vflops.record.readout.trained_frameworks import other_framework
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.job_power import job_power
from vflops.results.score.loss_score import loss_score
from vflops.results.score.node_power import jobs_sharing_meters
from vflops.results.score.parallelism import parallelism_score
from vflops.results.score.scale_score import scale_score
from vflops.results.score.score_file import (
    PowerScore,
    QualityScore,
    SpeedScore,
    TrainingScore,
    UncountedOperator,
    WorkScore,
)
from vflops.results.score.scoring_convention import job_convention
from vflops.results.score.utilisation import (
    batch_ops,
    convention_scores,
    mfu_score,
)
from vflops.results.task.closed_tasks import tasks


def training_scores(contents: Contents) -> tuple[TrainingScore, ...]:
    """Return one score per training job, in the order of the jobs."""
    sharing = jobs_sharing_meters(contents.folder, contents.training_jobs)
    return tuple(
        _score(contents, trained, sharing.get(trained.record.job, ()))
        for trained in contents.training_jobs
    )


def _score(contents: Contents, trained: TrainedJob, shared_with: tuple[int, ...]) -> TrainingScore:
    record = trained.record
    work = job_work(contents, record)
    quality = _quality(trained)
    speed = _speed(trained, work, quality)
    power = job_power(contents, trained, shared_with)
    started = trained.started
    graph = next((g for g in contents.graphs if g.model == record.workload), None)
    utilisation = mfu_score(trained, work, job_ceilings(contents, trained), graph)
    return TrainingScore(
        job=record.job,
        workload=record.workload,
        repeat=record.repeat,
        seed=record.seed,
        model=record.bag.model if record.bag else None,
        complete=contents.history.ended(record.job),
        attempts=len(trained.attempts),
        device=started.device_name if started else None,
        framework=other_framework(started),
        precision=started.precision if started else None,
        emulated=started.emulated if started else None,
        layers_of_8_bits=started.layers_of_8_bits if started else 0,
        ranks=record.ranks,
        batch=started.batch if started else None,
        synthetic=record.data.synthetic,
        skipped=record.data.skipped,
        data_facts=record.data.facts,
        unit=record.data.unit,
        work=work,
        samples_trained=trained.samples_trained,
        samples_redone=trained.samples_redone,
        samples_evaluated=trained.samples_evaluated,
        epochs=round(trained.samples_trained / record.data.train, 4) if record.data.train else 0.0,
        phases=trained.phases,
        wall_s=trained.wall_s,
        work_s=trained.work_s,
        quality=quality,
        speed=speed,
        mfu=utilisation,
        conventions=convention_scores(trained, graph, utilisation),
        power=power,
        vflops_per_watt=_per_watt(speed.vflops if speed else None, power),
        vflops_capped_per_watt=_per_watt(speed.vflops_capped if speed else None, power),
        kernels=trained.kernels,
        shared=parallelism_score(contents, trained),
        task=contents.once(tasks)[record.job].kind,
        scale=scale_score(trained, work) if record.bag is None else None,
    )


def _per_watt(vflops: float | None, power: PowerScore) -> float | None:
    return None if vflops is None else vflops_per_watt(vflops=vflops, power_w=power.power_w)


def job_work(contents: Contents, record: JobRecord) -> WorkScore | None:
    """Return ``work_score`` of a job, computed once for all jobs with the same work."""
    kind = record.workload, record.rules, record.declared, record.graph_declared
    return contents.once_for((work_score, *kind), lambda: work_score(record, contents.graphs))


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
            batch_ops=BatchOps(
                batch=1, forward=record.declared.ops_forward, total=record.declared.ops_total
            ),
        )
    for graph in graphs:
        if graph.model == record.workload:
            counted = count(graph, job_convention(record))
            executed = count(graph, convention(EXECUTED_CONVENTION))
            return WorkScore(
                source="declared graph" if record.graph_declared else "counted",
                detail=f"graphs/{graph.model}.json",
                rules=counted.convention.id,
                rules_version=counted.convention.version,
                ops_forward=counted.total.forward // graph.batch,
                ops_total=counted.total.total // graph.batch,
                ops_executed=executed.total.total // graph.batch,
                uncounted=_uncounted(counted),
                batch_ops=batch_ops(counted),
                batch_ops_executed=batch_ops(executed),
            )
    return None


def _uncounted(counted: Count) -> tuple[UncountedOperator, ...]:
    """Return the operators without a rule, unknown ones and those with the most work first."""
    operators = [
        UncountedOperator(
            op=item.op.removesuffix(".default"),
            nodes=item.nodes,
            executed_share=item.executed_share,
            foreign=item.is_unknown,
        )
        for item in counted.uncounted
    ]
    return tuple(sorted(operators, key=lambda item: (not item.foreign, -item.executed_share)))


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
        factor = finite_quality_factor(
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
        penalty_capped=None if achieved is None else capped_factor(factor),
        time_to_quality_s=reached_s,
        epochs_to_quality=epochs,
        loss=loss_score(goal, trained.record.data, achieved),
    )


def _speed(trained: TrainedJob, work: WorkScore | None, quality: QualityScore) -> SpeedScore | None:
    ops = work.batch_ops if work else None
    if ops is None or trained.work_s <= 0 or trained.wall_s <= 0:
        return None
    ops_training = ops.of_training(trained.samples_trained)
    ops_evaluation = ops.of_evaluation(trained.samples_evaluated)
    samples_timed = trained.samples_timed
    ops_timed = ops.of_training(samples_timed)
    rate = flops(ops=ops_timed, time_s=trained.work_s)
    evaluating_s = trained.phases["evaluation"]
    unit = trained.record.data.unit
    return SpeedScore(
        samples_per_s=samples_timed / trained.work_s,
        units_per_s=samples_timed * unit.count / trained.work_s if unit else None,
        ops_training=ops_training,
        ops_evaluation=ops_evaluation,
        flops=rate,
        flops_evaluation=flops(ops=ops_evaluation, time_s=evaluating_s)
        if evaluating_s > 0
        else None,
        flops_whole=flops(ops=ops_training + ops_evaluation, time_s=trained.wall_s),
        vflops=None if quality.penalty is None else rate * quality.penalty,
        vflops_capped=None if quality.penalty_capped is None else rate * quality.penalty_capped,
        samples_timed=samples_timed,
        ops_timed=ops_timed,
    )
