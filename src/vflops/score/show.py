"""A score as rows of text."""

from __future__ import annotations

from vflops.score import words
from vflops.score.record import ModelScore, RepeatScore, RuleCount, Score, TrainingScore
from vflops.units import percent, quantity

CEILINGS = ("benchmark", "case", "precision", "median", "spread", "caveat")
MODELS = ("model", "rules", "forward", "training", "at most here")
REPEATS = ("figure", "mean", "variation", "of")


def training_title(training: TrainingScore) -> str:
    """Which training it is."""
    return f"{training.workload}, seed {training.seed}"


def training_rows(training: TrainingScore) -> list[tuple[str, str]]:
    """A training's figures, a name and a text each, the ones that are quoted first."""
    speed, quality = training.speed, training.quality
    rows = []
    if not training.complete:
        rows.append(("incomplete", words.how_far(training)))
    if speed is not None:
        rows += [
            ("VFLOPS", quantity(speed.vflops, "VFLOPS")),
            ("FLOPS", f"{quantity(speed.flops, 'FLOPS')} ({words.rules(training.work)})"),
        ]
    else:
        rows.append(("FLOPS", f"— ({words.rules(training.work)})"))
    rows += [
        ("quality", words.achieved(quality)),
        ("penalty", words.penalty(quality)),
        ("time to quality", words.time_to_quality(quality)),
        ("speed", words.rate(speed.samples_per_s if speed else None)),
        ("MFU", words.mfu(training.mfu)),
        ("VFLOPS/W", _per_watt(training)),
        ("time", words.budget(training)),
        ("data", words.data(training)),
        *([("", words.data_facts(training))] if training.data_facts else []),
    ]
    if training.attempts > 1:
        again = f"{training.attempts}, {training.samples_redone:,} samples trained on again"
        rows.append(("attempts", again))
    return rows


def result_rows(score: Score) -> list[tuple[str, ...]]:
    """What each training came to, a row each; of repeats the seed is named."""
    rows: list[tuple[str, ...]] = []
    for training in score.trainings:
        again = any(repeat.workload == training.workload for repeat in score.repeats)
        name = training_title(training) if again else training.workload
        rows.append((name, *words.result(training)))
    return rows


def repeat_line(repeat: RepeatScore) -> str:
    """How far seeds agree, in one line."""
    figures = (
        ("quality", repeat.quality),
        ("FLOPS", repeat.flops),
        ("epochs to quality", repeat.epochs_to_quality),
    )
    known = [f"{name} {percent(each.variation)}" for name, each in figures if each]
    varied = f"; coefficients of variation: {', '.join(known)}" if known else ""
    return f"{repeat.reached} of {repeat.planned} seeds reached the target{varied}"


def repeat_rows(repeat: RepeatScore) -> list[tuple[str, ...]]:
    """How far seeds agree, a row a figure, under the names of ``REPEATS``."""
    ended = f"{repeat.complete} of {repeat.planned} seeds"
    reached = f"{repeat.reached} of {repeat.complete} reached the target"
    return [
        ("quality", *words.spread(repeat.quality, None), ended),
        ("FLOPS", *words.spread(repeat.flops, "FLOPS"), ended),
        ("epochs to quality", *words.spread(repeat.epochs_to_quality, None), reached),
    ]


def ceiling_rows(score: Score) -> list[tuple[str, ...]]:
    """What was measured, a row a ceiling, under the names of ``CEILINGS``."""
    return [
        (
            item.benchmark,
            item.case,
            item.precision or "",
            quantity(item.value, item.unit),
            percent(item.spread),
            item.caveat or "",
        )
        for item in score.ceilings
        if item.value is not None
    ]


def model_rows(score: Score) -> list[tuple[str, ...]]:
    """Operations of one sample, a row a model and rule set, under the names of ``MODELS``."""
    return [
        (
            model.model,
            f"{count.rules}/{count.rules_version}",
            quantity(count.ops_forward, "FLOP"),
            quantity(count.ops_total, "FLOP"),
            _most(model, count),
        )
        for model in score.models
        for count in model.counts
    ]


def _per_watt(training: TrainingScore) -> str:
    if training.vflops_per_watt is None:
        return f"— {words.power(training.power)}"
    figure = quantity(training.vflops_per_watt, "VFLOPS/W")
    return f"{figure} at {words.power(training.power)}"


def _most(model: ModelScore, count: RuleCount) -> str:
    bound = model.bound
    if bound is None or bound.rules != count.rules:
        return ""
    return f"{quantity(bound.samples_per_s, 'samples/s')} in {bound.precision}"
