"""The figures of trainings as tables of the report: what ran once, what it came to a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vflops.metrics import coefficient_of_variation, mean
from vflops.record.formats.job_events import PHASES
from vflops.results.score import figure_text, parallelism_text
from vflops.results.score.score_file import TrainingScore
from vflops.units import integer, percent, quantity, seconds

Tile = dict[str, str]
_TO_QUALITY = "time to quality"


def tiles(training: TrainingScore) -> list[Tile]:
    """The figures that people quote first, each with what it rests on."""
    quality, speed, power = training.quality, training.speed, training.power
    found = [
        ("VFLOPS", quantity(speed.vflops if speed else None, "VFLOPS"), _exponent(training)),
        (
            "FLOPS",
            quantity(speed.flops if speed else None, "FLOPS"),
            figure_text.rules(training.work),
        ),
        (
            quality.name,
            "—" if quality.achieved is None else figure_text.number(quality.achieved),
            f"target {quality.target:g}",
        ),
        (
            _TO_QUALITY,
            figure_text.NOT_REACHED
            if quality.time_to_quality_s is None
            else seconds(quality.time_to_quality_s),
            "from the start of the processes"
            if quality.epochs_to_quality is None
            else f"epoch {quality.epochs_to_quality:g}",
        ),
        ("speed", figure_text.rate(speed.samples_per_s if speed else None), "of training"),
        (
            "MFU",
            percent(training.mfu.value),
            training.mfu.reason
            or f"of {quantity(training.mfu.ceiling_flops, 'FLOPS')}, {training.mfu.ceiling}",
        ),
        ("VFLOPS/W", quantity(training.vflops_per_watt, "VFLOPS/W"), _watts(training)),
    ]
    if power.power_w is None:
        found[-1] = ("VFLOPS/W", "—", figure_text.NOT_MEASURED)
    return [{"name": name, "value": value, "note": note} for name, value, note in found]


def mean_tiles(trainings: Sequence[TrainingScore]) -> list[Tile]:
    """The same figures of repeats: the mean of the seeds, each with how far they are apart."""
    of = f"mean of {figure_text.count(len(trainings), 'seed')}"
    rows: list[Tile] = []
    for first, (pick, shown) in zip(tiles(trainings[0]), _MEANS, strict=True):
        values = [value for each in trainings if (value := pick(each)) is not None]
        if len(values) < len(trainings):
            some = f"{len(values)} of {figure_text.count(len(trainings), 'seed')}"
            absent = figure_text.NOT_REACHED if first["name"] == _TO_QUALITY else "—"
            note = f"{some}; {first['note']}" if values else first["note"]
            rows.append({"name": first["name"], "value": absent, "note": note})
            continue
        apart = percent(coefficient_of_variation(values)) if mean(values) > 0 else "—"
        note = f"{of}, CV {apart}" + ("" if rows else f"; {_rules(trainings[0])}")
        rows.append({"name": first["name"], "value": shown(mean(values)), "note": note})
    return rows


def setting_rows(training: TrainingScore) -> list[tuple[str, str]]:
    """What ran: the same for all seeds of a workload."""
    work, quality = training.work, training.quality
    rows = [
        ("device", training.device or "—"),
        ("precision", parallelism_text.precision(training)),
        ("ranks", str(training.ranks)),
        ("batch of all ranks", integer(training.batch)),
        ("data", figure_text.data(training)),
        *([("", figure_text.data_facts(training))] if training.data_facts else []),
    ]
    if work is None:
        return [*rows, ("operations of one sample", "not known: no graph and none declared")]
    source = f"counted from {work.detail} by {figure_text.rules(work)}"
    if work.source != "counted":
        source = f"DECLARED, not counted: {work.detail}"
    rows += [
        ("operations of one sample", f"{integer(work.ops_total)} in training, {source}"),
        ("", f"{integer(work.ops_forward)} in evaluation (forward only)"),
        (
            figure_text.FACTOR,
            f"({'achieved / target' if quality.better == 'higher' else 'target / achieved'})^n "
            f"with n = {quality.exponent}, target {quality.target:g} {quality.name}",
        ),
    ]
    return rows


def figure_rows(trainings: Sequence[TrainingScore]) -> list[tuple[str, list[str]]]:
    """What each seed came to: a name, and a text for each training."""
    rows = [(name, [text(each) for each in trainings]) for name, text in _FIGURES]
    for phase in PHASES:
        rows.append((f"time in {phase}", [_phase(each, phase) for each in trainings]))
    rows.append(("wall time, the sum of these", [seconds(each.wall_s) for each in trainings]))
    rows.append(("time that FLOPS count", [seconds(each.work_s) for each in trainings]))
    sensors = {source for each in trainings for source in each.power.sources}
    if sensors:
        rows.append(("power read from", [", ".join(each.power.sources) for each in trainings]))
    return rows


def _speed(pick: str, unit: str) -> Callable[[TrainingScore], str]:
    def text(training: TrainingScore) -> str:
        value = getattr(training.speed, pick) if training.speed else None
        return integer(value) if isinstance(value, int) else quantity(value, unit)

    return text


_MEANS: tuple[tuple[Callable[[TrainingScore], float | None], Callable[[float], str]], ...] = (
    (lambda each: each.speed.vflops if each.speed else None, lambda v: quantity(v, "VFLOPS")),
    (lambda each: each.speed.flops if each.speed else None, lambda v: quantity(v, "FLOPS")),
    (lambda each: each.quality.achieved, figure_text.number),
    (lambda each: each.quality.time_to_quality_s, seconds),
    (lambda each: each.speed.samples_per_s if each.speed else None, figure_text.rate),
    (lambda each: each.mfu.value, percent),
    (lambda each: each.vflops_per_watt, lambda v: quantity(v, "VFLOPS/W")),
)
"""What ``tiles`` shows, in its order."""
_FIGURES: tuple[tuple[str, Callable[[TrainingScore], str]], ...] = (
    ("VFLOPS", _speed("vflops", "VFLOPS")),
    ("FLOPS of training", _speed("flops", "FLOPS")),
    ("FLOPS of evaluation", _speed("flops_evaluation", "FLOPS")),
    ("FLOPS over the wall time", _speed("flops_whole", "FLOPS")),
    ("quality", lambda each: figure_text.achieved(each.quality)),
    (figure_text.FACTOR, lambda each: figure_text.factor(each.quality)),
    ("time to quality", lambda each: figure_text.time_to_quality(each.quality)),
    ("speed", lambda each: figure_text.rate(each.speed.samples_per_s if each.speed else None)),
    ("MFU", lambda each: figure_text.mfu(each.mfu)),
    ("VFLOPS/W", lambda each: quantity(each.vflops_per_watt, "VFLOPS/W")),
    ("mean power", lambda each: _watts(each)),
    ("energy", lambda each: quantity(each.power.energy_j, "J")),
    ("epochs", lambda each: figure_text.number(each.epochs)),
    ("samples trained on", lambda each: integer(each.samples_trained)),
    ("samples trained on again", lambda each: integer(each.samples_redone)),
    ("samples evaluated", lambda each: integer(each.samples_evaluated)),
    ("operations of training", _speed("ops_training", "FLOP")),
    ("operations of evaluation", _speed("ops_evaluation", "FLOP")),
    ("attempts", lambda each: str(each.attempts) + ("" if each.complete else ", not ended")),
)


def _exponent(training: TrainingScore) -> str:
    factor = training.quality.penalty
    made = "" if factor is None else f"FLOPS × {figure_text.FACTOR} {factor:.3g}; "
    return made + _rules(training)


def _rules(training: TrainingScore) -> str:
    return f"n = {training.quality.exponent}, {figure_text.rules(training.work)}"


def _watts(training: TrainingScore) -> str:
    return (
        figure_text.NOT_MEASURED
        if training.power.power_w is None
        else figure_text.power(training.power)
    )


def _phase(training: TrainingScore, phase: str) -> str:
    spent_s = training.phases.get(phase, 0.0)
    return f"{seconds(spent_s)} ({percent(spent_s / (training.wall_s or 1.0))})"
