"""The variation over repeats with different seeds: HPC AI500's repeatability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vflops.metrics import coefficient_of_variation, mean
from vflops.results.score.score_file import EnsembleScore, RepeatScore, Spread, TrainingScore
from vflops.results.task.task import TaskKind


@dataclass(frozen=True)
class _Repeat:
    """The figures of one finished repeat: of a single model, or of an ensemble."""

    quality: float | None
    is_met: bool
    flops: float | None
    vflops: float | None
    vflops_capped: float | None
    epochs_to_quality: float | None
    time_to_quality_s: float | None
    task: TaskKind | None

    @property
    def has_reached(self) -> bool:
        """Whether an evaluation reached the target, even if a later one did not."""
        return self.is_met or self.epochs_to_quality is not None


def repeat_scores(
    trainings: Sequence[TrainingScore], ensembles: Sequence[EnsembleScore]
) -> tuple[RepeatScore, ...]:
    """Return one score per workload that was repeated, with the variation over its repeats.

    Single models and ensembles are repeated; an ensemble counts if it has all its models.
    """
    scores = []
    for name in dict.fromkeys(training.workload for training in trainings):
        planned = [training for training in trainings if training.workload == name]
        repeats = len({training.repeat for training in planned})
        if repeats < 2:
            continue
        if planned[0].model is None:
            ended = [_of_training(training) for training in planned if training.complete]
            scores.append(_score(name, None, repeats, ended))
        else:
            whole = [e for e in ensembles if e.workload == name and not e.partial]
            models = sum(training.repeat == planned[0].repeat for training in planned)
            scores.append(_score(name, models, repeats, [_of_ensemble(e) for e in whole]))
    return tuple(scores)


def _of_training(score: TrainingScore) -> _Repeat:
    speed, quality = score.speed, score.quality
    return _Repeat(
        quality=quality.achieved,
        is_met=quality.is_met,
        flops=speed.flops if speed else None,
        vflops=speed.vflops if speed else None,
        vflops_capped=score.capped_vflops,
        epochs_to_quality=quality.epochs_to_quality,
        time_to_quality_s=quality.time_to_quality_s,
        task=score.task,
    )


def _of_ensemble(score: EnsembleScore) -> _Repeat:
    return _Repeat(
        quality=score.achieved,
        is_met=score.is_met,
        flops=score.flops,
        vflops=score.vflops,
        vflops_capped=score.capped_vflops,
        epochs_to_quality=score.epochs_to_quality,
        time_to_quality_s=score.time_to_quality_s,
        task=score.task,
    )


def _score(name: str, models: int | None, planned: int, ended: Sequence[_Repeat]) -> RepeatScore:
    return RepeatScore(
        workload=name,
        planned=planned,
        complete=len(ended),
        reached=sum(repeat.has_reached for repeat in ended),
        quality=_spread([repeat.quality for repeat in ended]),
        flops=_spread([repeat.flops for repeat in ended]),
        vflops=_spread([repeat.vflops for repeat in ended]),
        epochs_to_quality=_spread([repeat.epochs_to_quality for repeat in ended]),
        vflops_capped=_spread([repeat.vflops_capped for repeat in ended]),
        time_to_quality_s=_spread([repeat.time_to_quality_s for repeat in ended]),
        task=_common_task(ended),
        models=models,
    )


def _common_task(repeats: Sequence[_Repeat]) -> TaskKind | None:
    """Return ``open`` if one of the repeats has an open task; None without repeats."""
    kinds = {repeat.task for repeat in repeats}
    return "open" if "open" in kinds else "closed" if "closed" in kinds else None


def _spread(values: Sequence[float | None]) -> Spread | None:
    """Return mean and coefficient of variation; None for a single value or if one is missing."""
    known = [value for value in values if value is not None]
    if len(known) < 2 or len(known) < len(values) or mean(known) <= 0:
        return None
    return Spread(mean=mean(known), variation=coefficient_of_variation(known))
