"""Blocks of the report for training: one per workload, with all its seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from vflops.counting.count import count
from vflops.metrics import mean
from vflops.publish.pages.roofline_points import Achieved
from vflops.publish.report import (
    curves,
    distribution_charts,
    exhibits,
    progress_charts,
    training_charts,
)
from vflops.publish.report import figure_tables as figures
from vflops.publish.report.exhibits import ExhibitFigures
from vflops.publish.report.figure_tables import Tile
from vflops.publish.report.training_charts import Course
from vflops.record.readout.contents import Contents
from vflops.record.readout.job_ceilings import job_ceilings
from vflops.record.readout.trained_job import TrainedJob
from vflops.results import many_trainings
from vflops.results.roofline.analysis import Bound, bound
from vflops.results.roofline.run_ceilings import ceilings_for, model_ceilings
from vflops.results.score import figure_text, parallelism_text, score_tables
from vflops.results.score.loss_score import loss_of
from vflops.results.score.score_file import RepeatScore, Score, TrainingScore
from vflops.results.score.scoring import best_bound
from vflops.results.score.scoring_convention import job_convention
from vflops.units import count as number_of
from vflops.units import percent, quantity, seconds

_MAX_EXAMPLES = 8
"""How many of many seeds are shown in detail."""
_MAX_NOTES = 8


@dataclass(frozen=True)
class Block:
    """What the report shows for one workload."""

    kind: ClassVar[str] = "training"

    id: str
    workload: str
    title: str
    gist: str
    """What the section is about, in a few words."""
    tiles: list[Tile]
    ended: bool
    """Whether all seeds have finished, so that missing parts will not appear later."""
    notes: list[str]
    """Remarks on the figures."""
    settings: list[tuple[str, str]]
    distribution: list[tuple[str, ...]]
    """How the figures of many seeds are distributed; empty if all of them are shown."""
    histograms: dict[str, Any] | None
    outliers: list[str]
    seeds: list[str]
    figures: list[tuple[str, list[str]]]
    repeats: list[tuple[str, ...]]
    loss: dict[str, Any] | None
    quality: dict[str, Any] | None
    progress: str
    """What these two are drawn over: ``epoch``, or units of samples such as ``tokens``."""
    loss_is_quality: bool
    """Whether the quality follows from the loss."""
    has_floor: bool
    """Whether the lowest possible loss is known."""
    conventions: list[tuple[str, ...]]
    """The speed by conventions for transformers, and its shares of peaks; empty for others."""
    peaks: str
    """Which peaks these shares are of."""
    exhibit: ExhibitFigures | None
    """Figures that the workload draws to show what its model does."""
    throughput: dict[str, Any] | None
    power: dict[str, Any] | None
    power_reasons: list[str]
    utilisation: dict[str, Any] | None
    traffic: dict[str, Any] | None
    budget: dict[str, Any] | None
    wall: str
    shared: list[tuple[str, str]]
    """How the ranks shared the model, and their traffic; empty for one rank."""
    kernels: dict[str, Any] | None


@dataclass(frozen=True)
class RooflineModel:
    """A trained model in the roofline: its bound, and what it achieved."""

    bound: Bound
    achieved: Achieved | None
    sentence: str | None


def blocks(contents: Contents, scored: Score) -> list[Block]:
    """Return one block per workload whose training has begun."""
    pairs = list(zip(contents.training_jobs, scored.trainings, strict=True))
    built = []
    for number, name in enumerate(
        dict.fromkeys(training.workload for training in scored.trainings)
    ):
        begun = [pair for pair in pairs if pair[1].workload == name and pair[1].attempts]
        if not begun:
            continue
        repeat = next((r for r in scored.repeats if r.workload == name and r.models is None), None)
        built.append(_block(contents, f"training-{number}", begun, repeat))
    return built


def roofline_models(contents: Contents, scored: Score) -> list[RooflineModel]:
    """Return the trained models that have a counted graph, in the precision of their training.

    The ceilings of a model are those of the nodes that trained it.
    """
    by_workload: dict[str, RooflineModel] = {}
    graphs = {graph.model: graph for graph in contents.graphs}
    for trained, score in zip(contents.training_jobs, scored.trainings, strict=True):
        graph = graphs.get(score.workload)
        known = by_workload.get(score.workload)
        if graph is None or (known is not None and known.achieved is not None):
            continue
        counted = count(graph, job_convention(trained.record))
        precision = trained.started.ceiling_precision if trained.started else None
        machine, unbounded = (
            ceilings_for(contents, trained)
            if score.samples_trained
            else model_ceilings(contents, score.workload)
        )
        model_bound, _ = best_bound(counted, machine)
        if model_bound is None or unbounded:
            continue
        if precision in machine.precisions(graph):
            model_bound = bound(counted, machine, precision)
        has_speed = score.speed is not None and precision == model_bound.precision
        speeds = _speeds_per_device(contents, scored, trained) if has_speed else []
        by_workload[score.workload] = _roofline_model(model_bound, trained, score, speeds)
    return list(by_workload.values())


def _speeds_per_device(contents: Contents, scored: Score, trained: TrainedJob) -> list[float]:
    """Return the FLOPS per device of all finished jobs of the workload on nodes of the same kinds.

    If none finished, return that of this job.
    """
    bounding = job_ceilings(contents, trained)
    speeds: dict[bool, list[float]] = {True: [], False: []}
    for job, score in zip(contents.training_jobs, scored.trainings, strict=True):
        is_other = score.workload != trained.record.workload
        if is_other or score.speed is None or job_ceilings(contents, job) != bounding:
            continue
        if score.complete or job is trained:
            speeds[score.complete].append(score.speed.flops / job.devices)
    return speeds[True] or speeds[False]


def _roofline_model(
    model_bound: Bound,
    trained: TrainedJob,
    score: TrainingScore,
    speeds: Sequence[float],
) -> RooflineModel:
    moved_bytes = sum(point.bytes_moved for point in model_bound.points)
    if not speeds or not mean(speeds) or not moved_bytes:
        return RooflineModel(model_bound, None, None)
    flops = mean(speeds)
    over_runs = f" on average over {len(speeds)} training runs" if len(speeds) > 1 else ""
    on_cpu = trained.started is not None and trained.started.device == "cpu"
    device = "hosts" if on_cpu else "accelerators"
    per_device = f" on each of {trained.devices} {device}" if trained.devices > 1 else ""
    share = percent(flops / model_bound.attainable)
    sentence = (
        f"Trained with batch {score.batch}, {score.workload} achieved {quantity(flops, 'FLOPS')}"
        f"{per_device}{over_runs}: {share} of what these ceilings allow."
    )
    achieved = Achieved(
        score.workload, model_bound.ops / moved_bytes, flops, model_bound.attainable
    )
    return RooflineModel(model_bound, achieved, sentence)


def _block(
    contents: Contents,
    id: str,
    pairs: Sequence[tuple[TrainedJob, TrainingScore]],
    repeat: RepeatScore | None,
) -> Block:
    scores = [score for _, score in pairs]
    is_many = len(scores) > many_trainings.MANY
    shown = _examples(pairs) if is_many else pairs
    shown_scores = [score for _, score in shown]
    courses = [_course(contents, trained, score) for trained, score in shown]
    ended = [score for score in scores if score.complete]
    representative = ended[0] if ended else scores[0]
    use_means = repeat is not None and len(ended) > 1
    scale, loss = _scale(pairs[0][0]), representative.quality.loss
    reason = next((score.power.reason for score in scores if score.power.reason), None)
    profiled = next((score.kernels for score in scores if score.kernels), ())
    return Block(
        id=id,
        workload=representative.workload,
        title=representative.workload,
        gist=_gist(scores, shown_scores, representative, ended if use_means else []),
        tiles=figures.mean_tiles(ended) if use_means else figures.tiles(representative),
        ended=len(ended) == len(scores),
        notes=_notes(scores),
        settings=figures.setting_rows(representative),
        distribution=many_trainings.distribution_rows(scores) if is_many else [],
        histograms=distribution_charts.histograms(scores) if is_many else None,
        outliers=many_trainings.outlier_lines(scores) if is_many else [],
        seeds=[course.name for course in courses],
        figures=figures.figure_rows(shown_scores),
        repeats=score_tables.repeat_rows(repeat) if repeat else [],
        loss=progress_charts.loss(courses, scale, _loss_marks(representative)),
        quality=distribution_charts.quality([trained for trained, _ in pairs])
        if is_many
        else progress_charts.quality(courses, pairs[0][0].record.goal, scale),
        progress=scale.name,
        loss_is_quality=loss is not None,
        has_floor=loss is not None and loss.floor is not None,
        conventions=figures.convention_rows(representative),
        peaks=figures.peaks_note(representative),
        exhibit=exhibits.exhibit_figures([(trained, score.complete) for trained, score in pairs]),
        throughput=training_charts.throughput(courses),
        power=training_charts.power(courses),
        power_reasons=reason.split("; ") if reason else [],
        utilisation=training_charts.utilisation(courses),
        traffic=training_charts.traffic(courses),
        budget=training_charts.budget(courses),
        wall=_wall(scores),
        shared=parallelism_text.shared_rows(representative),
        kernels=training_charts.kernels(profiled),
    )


def _examples(
    pairs: Sequence[tuple[TrainedJob, TrainingScore]],
) -> list[tuple[TrainedJob, TrainingScore]]:
    """Return the seeds to show in detail if there are many."""
    trained = {score.job: job for job, score in pairs}
    chosen = many_trainings.examples([score for _, score in pairs], _MAX_EXAMPLES)
    return [(trained[score.job], score) for score in chosen]


def _gist(
    scores: Sequence[TrainingScore],
    shown: Sequence[TrainingScore],
    representative: TrainingScore,
    means: Sequence[TrainingScore],
) -> str:
    """Return what the section is about, and which seeds its tiles are from."""
    over = f"{representative.unit.name}" if representative.unit else "epochs"
    about = f"figures, quality and loss over {over}, where the time went"
    if len(shown) < len(scores):
        about = f"distributions; {len(shown)} of {len(scores):,} in detail"
    if means:
        return f"means of {len(means)} of {len(scores)} seeds; {about}"
    if len(scores) > 1:
        return f"seed {representative.seed}, the first of {len(scores):,}; {about}"
    return about


def _wall(scores: Sequence[TrainingScore]) -> str:
    """Return the wall time of the training, or the longest of several seeds."""
    longest = seconds(max(score.wall_s for score in scores))
    return longest if len(scores) == 1 else f"at most {longest} per seed"


def _course(contents: Contents, trained: TrainedJob, score: TrainingScore) -> Course:
    sampled = curves.telemetry_lines(contents, trained)
    quality = score.quality
    points = [
        (evaluation.evaluated.epoch, evaluation.evaluated.quality)
        for evaluation in trained.evaluations
    ]
    reached = None
    if quality.time_to_quality_s is not None and quality.epochs_to_quality is not None:
        epoch = quality.epochs_to_quality
        reached = (epoch, dict(points)[epoch], quality.time_to_quality_s)
    return Course(
        seed=score.seed,
        loss=curves.loss_over_epochs(trained),
        validation_loss=[
            (epoch, value)
            for epoch, achieved in points
            if trained.record.goal.of_loss and (value := loss_of(achieved)) is not None
        ],
        quality=points,
        reached=reached,
        throughput=curves.throughput(trained),
        speed_unit=curves.speed_unit(trained),
        power=sampled.power,
        utilisation=sampled.utilisation,
        traffic=sampled.traffic,
        phases=score.phases,
    )


def _scale(trained: TrainedJob) -> progress_charts.Scale:
    """Return what the curves of a job are drawn over."""
    data = trained.record.data
    if data.unit is None or not data.train:
        return progress_charts.EPOCHS
    return progress_charts.Scale(data.unit.name, data.unit.count * data.train)


def _loss_marks(training: TrainingScore) -> dict[str, float]:
    """Return the losses to compare with: the target and, if it is known, the floor."""
    loss = training.quality.loss
    if loss is None:
        return {}
    return {"target": loss.target, **({} if loss.floor is None else {"floor": loss.floor})}


def _notes(scores: Sequence[TrainingScore]) -> list[str]:
    """Return remarks on what makes the figures differ from those of other runs."""
    first = scores[0]
    notes = [figure_text.data(first)] if first.synthetic is not False or first.skipped else []
    if first.work is not None and first.work.source != "counted":
        notes.append(f"operations declared, not counted: {first.work.detail}")
    if first.work is not None and first.work.lacks_operations:
        notes.append(f"not counted by {first.work.rules}: {figure_text.uncounted(first.work)}")
    if first.emulated:
        notes.append(f"{first.precision} is emulated: {first.emulated}")
    for score in scores:
        if not score.complete:
            notes.append(f"seed {score.seed} {figure_text.progress(score)}")
        elif score.samples_redone:
            repeated = number_of(score.samples_redone, "sample was", "samples were")
            notes.append(f"seed {score.seed} took {score.attempts} attempts: {repeated} repeated")
    more = len(notes) - _MAX_NOTES
    return [*notes[:_MAX_NOTES], f"and {more:,} more seeds"] if more > 1 else notes
