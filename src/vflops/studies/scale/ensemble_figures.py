"""Computes the figures of a point with M models × P ranks, from its run folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from vflops.counting.conventions import EXECUTED_CONVENTION, convention
from vflops.counting.count import count
from vflops.metrics import flops, mean
from vflops.metrics.quality import capped_factor, finite_quality_factor
from vflops.record.folder import RunFolder
from vflops.record.formats.graph import Graph
from vflops.record.formats.job_events import Exchanged, FrameworkCounted
from vflops.record.readout.contents import Contents
from vflops.record.readout.timeline import Timeline
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.ensemble_score import epoch_work, training_window_s
from vflops.results.score.node_usage import NodeUsage, node_usage
from vflops.results.score.score_file import EnsembleScore, Score, TrainingScore
from vflops.results.task.task import TaskKind
from vflops.studies.scale.axis import checks_failed
from vflops.studies.scale.point_figures import CeilingFigure, EnsembleFigures
from vflops.studies.scale.scale_result import Size


def ensemble_figures(folder: RunFolder, size: Size) -> EnsembleFigures:
    """Return the means over the repeats; a single model is timed like an ensemble."""
    contents, scored = Contents(folder), Score.read(folder.score_file)
    if size.jobs > 1:
        repeats = [_ensemble_repeat(ensemble) for ensemble in scored.ensembles]
    else:
        repeats = [_single_model_repeat(contents, training) for training in scored.trainings]
    rates = [repeat.flops for repeat in repeats if repeat.flops is not None]
    known = len(rates) == len(repeats)
    published = _mean_of_known([repeat.published for repeat in repeats])
    task: TaskKind = "open" if any(t.task == "open" for t in scored.trainings) else "closed"
    speeds = [training.speed.samples_per_s for training in scored.trainings if training.speed]
    sent = _sent_per_s(contents, scored.trainings, [repeat.window_s for repeat in repeats])
    return EnsembleFigures(
        repeats=len(repeats),
        partial=any(repeat.partial for repeat in repeats),
        attempts=max(training.attempts for training in scored.trainings),
        checks_failed=checks_failed(folder),
        window_s=round(mean([repeat.window_s for repeat in repeats]), 6),
        usage=_usage(contents),
        flops=mean(rates) if known else None,
        flops_epoch=_mean_of_known([repeat.flops_epoch for repeat in repeats]),
        flops_least=min(rates) if known else None,
        flops_most=max(rates) if known else None,
        vflops=_mean_of_known([repeat.capped for repeat in repeats]),
        vflops_published=published,
        quality=mean([repeat.quality for repeat in repeats]),
        quality_alone=mean([repeat.alone for repeat in repeats]),
        quality_factor=mean([capped_factor(repeat.penalty) for repeat in repeats]),
        penalty=_mean_of_known([repeat.penalty for repeat in repeats]),
        time_to_quality_s=_time_to_quality(scored.trainings),
        samples_per_s=mean(speeds) if len(speeds) == len(scored.trainings) else None,
        unit=scored.trainings[0].unit,
        exchanged_bytes=_exchanged_bytes(contents),
        sent_near_b_per_s=sent and sent.near,
        sent_far_b_per_s=sent and sent.far,
        kernels=next((training.kernels for training in scored.trainings if training.kernels), ()),
        ceilings=tuple(_ceilings(scored, contents.graphs)),
        task=task,
        **_of_the_framework(contents),
        emulated=next(
            (training.emulated for training in scored.trainings if training.emulated), None
        ),
    )


def _of_the_framework(contents: Contents) -> dict[str, Any]:
    """Return version, compilation and own count of the first job's framework."""
    job = next((job for job in contents.training_jobs if job.finished and job.started), None)
    if job is None or job.started is None or job.finished is None:
        return {}
    events = contents.history.events("framework-count", job.record.job)
    share = None
    graph = next((g for g in contents.graphs if g.model == job.record.workload), None)
    if events and graph is not None:
        counted = events[-1].payload(FrameworkCounted)
        ours = count(graph, convention(EXECUTED_CONVENTION)).total.total / graph.batch
        share = counted.flops / counted.samples / ours
    return {
        "compilation_s": job.finished.phases.get("compilation"),
        "own_count_share": share,
        "framework_version": job.started.framework_version or job.started.torch,
    }


class _Repeat(NamedTuple):
    """The figures of one repeat."""

    window_s: float
    flops: float | None
    flops_epoch: float | None
    penalty: float | None
    """The quality factor as published; None if it is infinite."""
    quality: float
    alone: float
    partial: bool = False

    @property
    def capped(self) -> float | None:
        """VFLOPS with a quality factor of at most 1."""
        return None if self.flops is None else self.flops * capped_factor(self.penalty)

    @property
    def published(self) -> float | None:
        """VFLOPS as published."""
        if self.flops is None or self.penalty is None:
            return None
        return self.flops * self.penalty


def _ensemble_repeat(score: EnsembleScore) -> _Repeat:
    return _Repeat(
        score.window_s,
        score.flops,
        score.flops_epoch,
        score.penalty,
        score.achieved,
        score.mean_quality,
        score.partial,
    )


def _single_model_repeat(contents: Contents, score: TrainingScore) -> _Repeat:
    """Return the figures of a single model, timed like an ensemble from its first step on."""
    (trained,) = (job for job in contents.training_jobs if job.record.job == score.job)
    window_s, quality = training_window_s([trained]), score.quality
    achieved = quality.achieved or 0.0
    factor = finite_quality_factor(
        achieved=achieved, target=quality.target, exponent=quality.exponent, better=quality.better
    )
    known = score.speed is not None and window_s > 0
    rate = flops(ops=score.speed.ops_training, time_s=window_s) if score.speed and known else None
    epoch = epoch_work([trained], [score]) if known else None
    by_epoch = flops(ops=epoch[0], time_s=epoch[1]) if epoch else None
    return _Repeat(window_s, rate, by_epoch, factor, achieved, achieved)


def _mean_of_known(values: Sequence[float | None]) -> float | None:
    """Return the mean; None if a value is not known."""
    known = [value for value in values if value is not None]
    return mean(known) if len(known) == len(values) else None


def _time_to_quality(scores: Sequence[TrainingScore]) -> float | None:
    """Return the slowest model's time, as a mean over repeats; None if one missed the target."""
    slowest: dict[int, float] = {}
    for score in scores:
        time_s = score.quality.time_to_quality_s
        if time_s is None:
            return None
        slowest[score.repeat] = max(time_s, slowest.get(score.repeat, 0.0))
    return mean(list(slowest.values()))


def _exchanged_bytes(contents: Contents) -> float | None:
    """Return the bytes that the ranks of a model send per step; None if they were not counted.

    The stages of a pipeline record their bytes separately.
    """
    per_step: list[float] = []
    for trained in contents.training_jobs:
        events = contents.history.events("exchange", trained.record.job)
        exchanges = [event.payload(Exchanged) for event in events]
        steps = max((exchange.steps for exchange in exchanges), default=0)
        if steps:
            per_step.append(
                sum(exchange.bytes_near + exchange.bytes_far for exchange in exchanges) / steps
            )
    return mean(per_step) if per_step else None


class _Sent(NamedTuple):
    """Bytes over links within nodes and between nodes."""

    near: float
    far: float


def _sent_per_s(
    contents: Contents, scores: Sequence[TrainingScore], windows_s: Sequence[float]
) -> _Sent | None:
    """Return what the ranks of all models sent per second, as a mean over repeats.

    Return None if a model of several ranks did not count its bytes, or if all have one rank.
    """
    jobs = {job.record.job: job for job in contents.training_jobs}
    totals: dict[int, _Sent] = {}
    for score in scores:
        finished = jobs[score.job].finished if score.job in jobs else None
        if score.shared is None or finished is None:
            return None
        exchanges = [e for e in (score.shared.exchange, score.shared.within) if e is not None]
        if not exchanges:
            return None
        near, far = totals.get(score.repeat, _Sent(0.0, 0.0))
        totals[score.repeat] = _Sent(
            near + finished.step * sum(exchange.bytes_near for exchange in exchanges),
            far + finished.step * sum(exchange.bytes_far for exchange in exchanges),
        )
    if len(totals) != len(windows_s) or not all(window_s > 0 for window_s in windows_s):
        return None
    pairs = list(zip(totals.values(), windows_s, strict=True))
    return _Sent(
        mean([sent.near / window_s for sent, window_s in pairs]),
        mean([sent.far / window_s for sent, window_s in pairs]),
    )


def _usage(contents: Contents) -> NodeUsage | None:
    """Return the usage of the nodes by the first repeat; None if it has not trained."""
    repeats: dict[int, list[TrainedJob]] = {}
    for job in contents.training_jobs:
        if job.finished:
            repeats.setdefault(job.record.repeat, []).append(job)
    if not repeats:
        return None
    members = repeats[min(repeats)]
    timeline = Timeline(members)
    window_s = (
        min(timeline.start_s(member) for member in members),
        max(timeline.end_s(member) for member in members),
    )
    return node_usage(timeline.parts, window_s)


def _ceilings(scored: Score, graphs: Sequence[Graph]) -> Iterator[CeilingFigure]:
    """Yield the speed of every operation in every precision, but of convolutions only if used."""
    kinds = {node.kind for graph in graphs for node in graph.nodes}
    unused = () if not kinds or "convolution" in kinds else ("convolution",)
    for ceiling in scored.ceilings:
        if ceiling.unit == "FLOPS" and ceiling.precision and ceiling.benchmark not in unused:
            yield CeilingFigure(
                benchmark=ceiling.benchmark,
                case=ceiling.case,
                precision=ceiling.precision,
                flops=ceiling.value,
                doubt=ceiling.caveat if ceiling.value is not None else ceiling.reason,
                node=ceiling.node,
            )
