"""The trainings of a run as blocks of its page, one a workload with all its seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vflops.counting.conventions import SCORING_CONVENTION, convention
from vflops.counting.count import count
from vflops.metrics import mean
from vflops.publish.pages.roofline_points import Achieved
from vflops.publish.report import curves, exhibits, training_charts
from vflops.publish.report import figure_tables as figures
from vflops.publish.report.exhibits import Shown
from vflops.publish.report.figure_tables import Tile
from vflops.publish.report.training_charts import Course
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.roofline.analysis import Bound, Ceilings, bound
from vflops.results.score import figure_text, parallelism_text, score_tables
from vflops.results.score.score_file import RepeatScore, Score, TrainingScore
from vflops.results.score.scoring import best_bound
from vflops.units import percent, quantity, seconds


@dataclass(frozen=True)
class Block:
    """What the page shows of one workload."""

    id: str
    title: str
    tiles: list[Tile]
    tiles_of: str | None
    """Which of several seeds the tiles are of."""
    ended: bool
    """Whether all trainings are over: what is missing then will not come any more."""
    notes: list[str]
    """What a reader must know of the figures."""
    settings: list[tuple[str, str]]
    seeds: list[str]
    figures: list[tuple[str, list[str]]]
    repeats: list[tuple[str, ...]]
    loss: dict[str, Any] | None
    quality: dict[str, Any] | None
    exhibit: Shown | None
    """What the workload itself shows of its trained model."""
    throughput: dict[str, Any] | None
    power: dict[str, Any] | None
    power_reasons: list[str]
    utilisation: dict[str, Any] | None
    traffic: dict[str, Any] | None
    budget: dict[str, Any] | None
    wall: str
    shared: list[tuple[str, str]]
    """How its ranks shared the model, and what they sent; empty for one rank."""
    kernels: dict[str, Any] | None


@dataclass(frozen=True)
class Placed:
    """A trained model under the ceilings of the machine, and what it reached there."""

    bound: Bound
    achieved: Achieved | None
    sentence: str | None


def blocks(contents: Contents, scored: Score) -> list[Block]:
    """One block a workload whose training has begun, in the order of the jobs."""
    pairs = list(zip(contents.trained, scored.trainings, strict=True))
    found = []
    for number, name in enumerate(dict.fromkeys(each.workload for each in scored.trainings)):
        own = [pair for pair in pairs if pair[1].workload == name and pair[1].attempts]
        if not own:
            continue
        repeat = next((each for each in scored.repeats if each.workload == name), None)
        found.append(_block(contents, f"training-{number}", own, repeat))
    return found


def missed(scored: Score) -> list[str]:
    """Each training or ensemble that ended without reaching its target, with what it reached."""
    lines = []
    for each in scored.trainings:
        alone = each.complete and each.model is None
        if alone and each.quality.time_to_quality_s is None:
            lines.append(f"{score_tables.name(scored, each)}, {figure_text.achieved(each.quality)}")
    for ensemble in scored.ensembles:
        if ensemble.penalty < 1:
            lines.append(f"{ensemble.workload}, {score_tables.ensemble_line(ensemble)}")
    return lines


def placed(contents: Contents, scored: Score, machine: Ceilings) -> list[Placed]:
    """Each trained model whose graph was counted, in the precision that it was trained in."""
    found: dict[str, Placed] = {}
    graphs = {graph.model: graph for graph in contents.graphs}
    for trained, score in zip(contents.trained, scored.trainings, strict=True):
        graph = graphs.get(score.workload)
        known = found.get(score.workload)
        if graph is None or (known is not None and known.achieved is not None):
            continue
        counted = count(graph, convention(SCORING_CONVENTION))
        precision = trained.started.ceiling_precision if trained.started else None
        under, _ = best_bound(counted, machine)
        if under is None:
            continue
        if precision in machine.precisions():
            under = bound(counted, machine, precision)
        found[score.workload] = _placed(under, trained, score, precision, _flops(scored, score))
    return list(found.values())


def _flops(scored: Score, training: TrainingScore) -> list[float]:
    """Of all trainings of its workload that ended; else of itself, as far as it is."""
    own = [each for each in scored.trainings if each.workload == training.workload]
    ended = [each.speed.flops for each in own if each.complete and each.speed]
    return ended or ([training.speed.flops] if training.speed else [])


def _placed(
    under: Bound,
    trained: TrainedJob,
    score: TrainingScore,
    precision: str | None,
    reached: Sequence[float],
) -> Placed:
    moved = sum(point.bytes_moved for point in under.points)
    if not reached or not mean(reached) or precision != under.precision or not moved:
        return Placed(under, None, None)
    flops = mean(reached) / trained.devices
    of = f" in the mean of {len(reached)} trainings" if len(reached) > 1 else ""
    each = f" on each of {trained.devices} accelerators" if trained.devices > 1 else ""
    sentence = (
        f"Trained with batch {score.batch}, {score.workload} achieved {quantity(flops, 'FLOPS')}"
        f"{each}{of}: {percent(flops / under.attainable)} of what these ceilings allow it."
    )
    achieved = Achieved(score.workload, under.ops / moved, flops, under.attainable)
    return Placed(under, achieved, sentence)


def _block(
    contents: Contents,
    id: str,
    pairs: Sequence[tuple[TrainedJob, TrainingScore]],
    repeat: RepeatScore | None,
) -> Block:
    scores = [score for _, score in pairs]
    courses = [_course(contents, trained, score) for trained, score in pairs]
    ended = [score for score in scores if score.complete]
    shown = ended[0] if ended else scores[0]
    together = repeat is not None and len(ended) > 1
    reason = next((score.power.reason for score in scores if score.power.reason), None)
    profiled = next((score.kernels for score in scores if score.kernels), ())
    return Block(
        id=id,
        title=shown.workload,
        tiles=figures.mean_tiles(ended) if together else figures.tiles(shown),
        tiles_of=_tiles_of(scores, shown, ended if together else []),
        ended=len(ended) == len(scores),
        notes=_notes(scores),
        settings=figures.setting_rows(shown),
        seeds=[course.name for course in courses],
        figures=figures.figure_rows(scores),
        repeats=score_tables.repeat_rows(repeat) if repeat else [],
        loss=training_charts.loss(courses),
        quality=training_charts.quality(courses, pairs[0][0].record.goal),
        exhibit=exhibits.shown([(trained, score.complete) for trained, score in pairs]),
        throughput=training_charts.throughput(courses),
        power=training_charts.power(courses),
        power_reasons=reason.split("; ") if reason else [],
        utilisation=training_charts.utilisation(courses),
        traffic=training_charts.traffic(courses),
        budget=training_charts.budget(courses),
        wall=_wall(scores),
        shared=parallelism_text.shared_rows(shown),
        kernels=training_charts.kernels(profiled),
    )


def _tiles_of(
    scores: Sequence[TrainingScore], shown: TrainingScore, means: Sequence[TrainingScore]
) -> str | None:
    if means:
        return f"means of {len(means)} of {len(scores)} seeds"
    return f"seed {shown.seed}, the first of {len(scores)}" if len(scores) > 1 else None


def _wall(scores: Sequence[TrainingScore]) -> str:
    """The time of one training; of several the longest, which is said."""
    longest = seconds(max(score.wall_s for score in scores))
    return longest if len(scores) == 1 else f"{longest} at most a seed"


def _course(contents: Contents, trained: TrainedJob, score: TrainingScore) -> Course:
    sampled = curves.sampled(contents.folder, trained)
    quality = score.quality
    points = [(each.evaluated.epoch, each.evaluated.quality) for each in trained.evaluations]
    reached = None
    if quality.time_to_quality_s is not None and quality.epochs_to_quality is not None:
        epoch = quality.epochs_to_quality
        reached = (epoch, dict(points)[epoch], quality.time_to_quality_s)
    return Course(
        seed=score.seed,
        loss=curves.loss_over_epochs(trained),
        quality=points,
        reached=reached,
        throughput=curves.throughput(trained),
        power=sampled.power,
        utilisation=sampled.utilisation,
        traffic=sampled.traffic,
        phases=score.phases,
    )


def _notes(scores: Sequence[TrainingScore]) -> list[str]:
    """What sets the figures apart from those of other runs."""
    first = scores[0]
    notes = [figure_text.data(first)] if first.synthetic or first.skipped else []
    if first.work is not None and first.work.source != "counted":
        notes.append(f"operations declared, not counted: {first.work.detail}")
    if first.quality.profile_target not in (None, first.quality.target):
        notes.append(
            f"{figure_text.target(first.quality)}: not comparable with runs of the profile"
        )
    if first.emulated:
        notes.append(f"{first.precision} is emulated: {first.emulated}")
    for each in scores:
        if not each.complete:
            notes.append(f"seed {each.seed} {figure_text.how_far(each)}")
        elif each.samples_redone:
            again = figure_text.count(each.samples_redone, "sample was", "samples were")
            notes.append(
                f"seed {each.seed} took {each.attempts} attempts: {again} trained on again"
            )
    return notes
