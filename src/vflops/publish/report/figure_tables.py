"""The figures of training runs as tiles and tables of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vflops.metrics import coefficient_of_variation, mean
from vflops.record.formats.job_events import PHASES
from vflops.results.figures import Figure, Key, format_value, training_figures
from vflops.results.score import figure_text, parallelism_text, score_tables
from vflops.results.score.score_file import TrainingScore, WorkScore
from vflops.units import count, integer, percent, quantity, seconds

Tile = dict[str, str]
Row = tuple[str, list[str]]
"""The name of a figure, and its text for each seed."""
_TILES: dict[Key, str | None] = {
    "vflops": None,
    "flops": None,
    "quality": None,
    "time_to_quality": None,
    "throughput": "speed",
    "mfu": None,
    "vflops_per_watt": "VFLOPS/W",
}
"""The figures shown as tiles, with the name of the tile; None stands for the figure's label."""
_IN_UNITS: dict[Key, Key] = {"throughput": "unit_throughput"}
"""What is shown instead if a sample has units, such as tokens."""


def tiles(training: TrainingScore) -> list[Tile]:
    """Return the most important figures, each with a note on what it is based on."""
    figures, notes = training_figures(training), _notes(training)
    return [
        {
            "name": name or figures[key].label,
            "value": _tile_text(figures[key], figures[key].value),
            "note": notes[key],
        }
        for key, name in _tile_names(training).items()
    ]


def _tile_names(training: TrainingScore) -> dict[Key, str | None]:
    """Return the figures of the tiles; the VFLOPS of an open task come last, under their name."""
    names = _TILES
    if training.unit is not None:
        names = {_IN_UNITS.get(key, key): name for key, name in _TILES.items()}
    if training.task != "open":
        return names
    closed = {key: name for key, name in names.items() if not key.startswith("vflops")}
    return {**closed, "open_vflops": None, "open_vflops_per_watt": f"{figure_text.OPEN_VFLOPS}/W"}


def mean_tiles(trainings: Sequence[TrainingScore]) -> list[Tile]:
    """Return the same figures as means over several seeds, with their variation."""
    seeds = count(len(trainings), "seed")
    repeats = [training_figures(training) for training in trainings]
    rows: list[Tile] = []
    for key, first in zip(_tile_names(trainings[0]), tiles(trainings[0]), strict=True):
        figure = repeats[0][key]
        values = [value for figures in repeats if (value := figures[key].value) is not None]
        if len(values) < len(trainings):
            note = f"{len(values)} of {seeds}; {first['note']}" if values else first["note"]
            text = _tile_text(figure, None)
        else:
            variation = percent(coefficient_of_variation(values)) if mean(values) > 0 else "—"
            note = f"mean of {seeds}, CV {variation}"
            note += "" if rows else f"; {_exponent_and_rules(trainings[0])}"
            text = _tile_text(figure, mean(values))
        rows.append({"name": first["name"], "value": text, "note": note})
    return rows


def _tile_text(figure: Figure, value: float | None) -> str:
    if value is None:
        return figure_text.NOT_REACHED if figure.key == "time_to_quality" else "—"
    return (
        figure_text.rate(value, figure.unit or "")
        if "throughput" in figure.key
        else format_value(figure.unit, value)
    )


def _notes(training: TrainingScore) -> dict[Key, str]:
    quality, mfu = training.quality, training.mfu
    epochs = quality.epochs_to_quality
    ceiling = f"executed operations, of {quantity(mfu.ceiling_flops, 'FLOPS')}, {mfu.ceiling}"
    return {
        "vflops": _score_note(training),
        "flops": figure_text.rules(training.work),
        "quality": "; ".join([f"target {quality.target:g}", *figure_text.short_loss(quality.loss)]),
        "time_to_quality": "from the start of the processes"
        if epochs is None
        else figure_text.epoch(epochs),
        "throughput": "of training",
        "unit_throughput": f"of training; {figure_text.rate(_samples_per_s(training))}",
        "mfu": mfu.reason or ceiling,
        "vflops_per_watt": _power_text(training),
        "open_vflops": f"{figure_text.NOT_COMPARABLE}; {_score_note(training)}",
        "open_vflops_per_watt": figure_text.NOT_COMPARABLE,
    }


def _samples_per_s(training: TrainingScore) -> float | None:
    return training.speed.samples_per_s if training.speed else None


CONVENTIONS = ("convention", "operations per sample", "FLOPS", "of the measured", "of the vendor's")
"""The columns of ``convention_rows``."""


def convention_rows(training: TrainingScore) -> list[tuple[str, ...]]:
    """Return the speed of a transformer and its share of both peaks, one row per convention."""
    return [
        (
            f"{score.rules}/{score.rules_version}",
            quantity(score.batch_ops.total / score.batch_ops.batch, "FLOP"),
            quantity(score.flops, "FLOPS"),
            percent(score.mfu),
            percent(score.mfu_vendor),
        )
        for score in training.conventions
    ]


def peaks_note(training: TrainingScore) -> str:
    """Return which peaks the shares of ``convention_rows`` are of."""
    mfu = training.mfu
    measured = mfu.reason or f"{quantity(mfu.ceiling_flops, 'FLOPS')}, {mfu.ceiling}"
    vendor = mfu.vendor_reason or "not known"
    if mfu.vendor is not None:
        vendor = f"{quantity(mfu.vendor.flops, 'FLOPS')}, {mfu.vendor.source}"
    return f"Measured ceiling: {measured}. Vendor's peak: {vendor}."


def setting_rows(training: TrainingScore) -> list[tuple[str, str]]:
    """Return the settings that all seeds of a workload share."""
    work, quality = training.work, training.quality
    rows = [
        ("device", training.device or "—"),
        *([("framework", training.framework)] if training.framework else []),
        ("precision", parallelism_text.precision(training)),
        ("ranks", str(training.ranks)),
        ("batch of all ranks", integer(training.batch)),
        *score_tables.scale_rows(training.scale),
        *score_tables.data_rows(training),
    ]
    if work is None:
        return [
            *rows,
            ("operations of one sample", "not known: the run has no graph and no declared count"),
        ]
    source = f"counted from {work.detail} by {figure_text.rules(work)}"
    if work.source != "counted":
        source = f"DECLARED, not counted: {work.detail}"
    rows += [
        ("operations of one sample", f"{integer(work.ops_total)} in training, {source}"),
        ("", f"{integer(work.ops_forward)} in evaluation (forward only)"),
        *_executed_rows(work),
        (
            figure_text.FACTOR,
            f"({'achieved / target' if quality.better == 'higher' else 'target / achieved'})^n "
            f"with n = {quality.exponent}, target {quality.target:g} {quality.name}",
        ),
    ]
    return rows


def _executed_rows(work: WorkScore) -> list[tuple[str, str]]:
    """Return what training executes of one sample, and the operators that are not counted."""
    if work.ops_executed is None:
        return []
    rows = [("", f"{integer(work.ops_executed)} executed in training, the basis of MFU")]
    if work.uncounted:
        rows.append((f"not counted by {work.rules}", figure_text.uncounted(work)))
    return rows


def figure_rows(trainings: Sequence[TrainingScore]) -> list[Row]:
    """Return the figures as rows of a name and one text per seed."""
    rows: list[Row] = [
        (name, [text(training) for training in trainings]) for name, text in _FIGURES
    ]
    rows[0] = (figure_text.vflops_name(trainings[0].task), rows[0][1])
    _insert_after(rows, "quality", _loss_rows(trainings))
    _insert_after(rows, "MFU", _utilisation_rows(trainings))
    for phase in PHASES:
        rows.append((f"time in {phase}", [_phase_text(training, phase) for training in trainings]))
    walls = [seconds(training.wall_s) for training in trainings]
    rows.append(("wall time, the sum of these", walls))
    rows.append(("time for FLOPS", [seconds(training.work_s) for training in trainings]))
    sources = [", ".join(training.power.sources) for training in trainings]
    if any(sources):
        rows.append(("power read from", sources))
    return rows


def _insert_after(rows: list[Row], name: str, more: Sequence[Row]) -> None:
    position = [row[0] for row in rows].index(name) + 1
    rows[position:position] = more


def _loss_rows(trainings: Sequence[TrainingScore]) -> list[Row]:
    """Return the loss, if the quality follows from it."""
    losses = [training.quality.loss for training in trainings]
    if not any(losses):
        return []
    return [("loss", [figure_text.loss(loss) if loss else "—" for loss in losses])]


def _utilisation_rows(trainings: Sequence[TrainingScore]) -> list[Row]:
    """Return the shares of the vendor's peak, and the speed by conventions for transformers."""
    by_seed = [dict(score_tables.utilisation_rows(training)) for training in trainings]
    names = dict.fromkeys(name for rows in by_seed for name in rows)
    return [(name, [rows.get(name, "—") for rows in by_seed]) for name in names]


def _speed_text(pick: str, unit: str) -> Callable[[TrainingScore], str]:
    def text(training: TrainingScore) -> str:
        value = getattr(training.speed, pick) if training.speed else None
        return integer(value) if isinstance(value, int) else quantity(value, unit)

    return text


_FIGURES: tuple[tuple[str, Callable[[TrainingScore], str]], ...] = (
    ("VFLOPS", lambda t: quantity(t.capped_vflops, "VFLOPS")),
    (f"VFLOPS {figure_text.AS_PUBLISHED}", _speed_text("vflops", "VFLOPS")),
    ("FLOPS of training", _speed_text("flops", "FLOPS")),
    ("FLOPS of evaluation", _speed_text("flops_evaluation", "FLOPS")),
    ("FLOPS over the wall time", _speed_text("flops_whole", "FLOPS")),
    ("quality", lambda t: figure_text.achieved(t.quality)),
    (figure_text.FACTOR, lambda t: figure_text.factor(t.quality)),
    ("time to quality", lambda t: figure_text.time_to_quality(t.quality)),
    ("speed", figure_text.throughput),
    ("MFU", lambda t: figure_text.mfu(t.mfu)),
    ("VFLOPS/W", lambda t: quantity(t.capped_vflops_per_watt, "VFLOPS/W")),
    ("mean power", lambda t: _power_text(t)),
    ("energy", lambda t: quantity(t.power.energy_j, "J")),
    ("epochs", lambda t: figure_text.number(t.epochs)),
    ("samples trained on", lambda t: integer(t.samples_trained)),
    ("samples repeated", lambda t: integer(t.samples_redone)),
    ("samples evaluated", lambda t: integer(t.samples_evaluated)),
    ("operations of training", _speed_text("ops_training", "FLOP")),
    ("operations of evaluation", _speed_text("ops_evaluation", "FLOP")),
    ("attempts", lambda t: str(t.attempts) + ("" if t.complete else ", not finished")),
)


def _score_note(training: TrainingScore) -> str:
    factor, published = training.quality.factor, training.speed.vflops if training.speed else None
    notes = [
        "" if factor is None else f"FLOPS × {figure_text.FACTOR} {factor:.3g}",
        figure_text.published_flops(training.capped_vflops, published),
        _exponent_and_rules(training),
    ]
    return "; ".join(filter(None, notes))


def _exponent_and_rules(training: TrainingScore) -> str:
    return f"n = {training.quality.exponent}, {figure_text.rules(training.work)}"


def _power_text(training: TrainingScore) -> str:
    return (
        figure_text.NOT_MEASURED
        if training.power.power_w is None
        else figure_text.power(training.power)
    )


def _phase_text(training: TrainingScore, phase: str) -> str:
    spent_s = training.phases.get(phase, 0.0)
    return f"{seconds(spent_s)} ({percent(spent_s / (training.wall_s or 1.0))})"
