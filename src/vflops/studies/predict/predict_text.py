"""A prediction as people read it: tables for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import NamedTuple

from vflops.studies.predict.inputs import Inputs
from vflops.studies.predict.published_scaling import CALIBRATED, Validation
from vflops.studies.predict.scaling_model import Prediction, predict
from vflops.studies.predict.sweeps import Lines, best, inner
from vflops.studies.predict.validation import MeasuredScale
from vflops.units import percent, quantity, seconds

Table = list[tuple[str, ...]]


class InputRow(NamedTuple):
    """An input, and where it comes from."""

    name: str
    value: str
    source: str


_UNITS = {"bandwidth": "B/s", "bytes": "B", "power_w": "W", "ops_per_sample": "FLOP"}


def story(inputs: Inputs) -> str:
    """How the training is run, in a line."""
    parallel, own = inputs.parallel, inputs.communication
    mode: str = parallel.mode
    if mode == "mixed":
        sharing = parallel.mesh[1] if parallel.mesh else parallel.sharing
        mode = f"data × {inner(inputs)} of {sharing or inputs.node.accelerators} ranks"
    elif mode == "model":
        mode = f"model, {parallel.split}"
    if parallel.inner == "pipeline":
        parts = inputs.train.accumulate or "4 a rank"
        mode = f"{mode}, {parallel.schedule}, micro-batches: {parts}"
    hidden = f"{percent(own.overlap, digits=0)} of a step" if own.overlap else "nothing"
    way = f"all-reduce by a {own.algorithm}" if own.mode == "all-reduce" else own.mode
    return (
        f"{mode} · communication: {way}, {own.precision}, buckets: {own.buckets},"
        f" hidden behind: {hidden}{_coding(inputs)}"
    )


def _coding(inputs: Inputs) -> str:
    """What compressing costs; nothing where nothing is compressed."""
    own = inputs.communication
    if own.precision == "fp32":
        return ""
    if own.coding_bandwidth is None:
        return ", coding: taken to cost nothing (communication.coding_bandwidth is not known)"
    return f", coding: {seconds(inputs.coding_s)}"


def input_rows(
    inputs: Inputs, sources: Mapping[str, str], absent: Mapping[str, str]
) -> list[InputRow]:
    """Every figure that is known, with where it comes from, and why others are not."""
    found: list[InputRow] = []
    for name, value in inputs.figures().items():
        choice = name.startswith(("communication.", "parallel.", "train."))
        if choice and name != "communication.coding_bandwidth":
            continue
        if value is not None:
            found.append(InputRow(name, _shown(name, value), sources.get(name, "typed")))
        elif name in absent:
            found.append(InputRow(name, "—", f"not known: {absent[name]}"))
    return found


def prediction_rows(points: Sequence[Prediction]) -> Table:
    """The figures of every M × P, the names first; a column without any is left out.

    What a batch that is too large takes away stays, as dashes: ``notes`` say why.
    """
    names = ("M × P", "slots", "step", "bubble", "waits", "efficiency")
    found: Table = [(*names, "FLOPS", "VFLOPS", "VFLOPS/W", "time", "energy")]
    several = any(each.models > 1 for each in points)
    bubbles = any(each.step.bubble_s for each in points)
    for each in points:
        step = each.step
        found.append(
            (
                f"{each.models:,} × {each.ranks:,}",
                f"{each.accelerators:,}" if several else "—",
                seconds(step.total_s),
                seconds(step.bubble_s) if bubbles else "—",
                seconds(step.exchange_s + step.reading_s),
                percent(each.efficiency),
                quantity(each.flops, ""),
                quantity(each.vflops, ""),
                quantity(each.vflops_per_w, ""),
                _long(each.time_s),
                quantity(each.energy_j, "J"),
            )
        )
    lost = ("VFLOPS", "time") if any(each.reason for each in points) else ()
    kept = [
        name in lost or any(row[index] != "—" for row in found[1:])
        for index, name in enumerate(found[0])
    ]
    return [tuple(compress(row, kept)) for row in found]


def notes(points: Sequence[Prediction], inputs: Inputs) -> list[str]:
    """What the table needs beside it: why figures are missing, and what VFLOPS rests on."""
    told = []
    large = [each for each in points if each.reason]
    if large:
        first = min(large, key=lambda each: each.ranks)
        told.append(
            f"no time, energy and VFLOPS from P = {first.ranks:,} on: {first.reason}, and what it"
            " would reach is not known; take more models or a smaller batch (step.batch)"
        )
    if any(each.vflops is not None for each in points):
        told.append(
            "VFLOPS has the quality factor, and time the epochs, of the batch that they were"
            f" measured with; here a batch is step.batch × P, {inputs.step.batch:,} × P, and a"
            " larger one may need more epochs or reach less"
        )
    return told


def paying_rows(lines: Lines, scales: Sequence[int]) -> Table:
    """Up to where each mode pays, the names first; what is missing with the reason."""
    found: Table = [("mode", "pays up to", "efficiency at the most")]
    for line in lines.lines:
        most = line.pays_up_to(scales)
        end = line.found(scales)[-1]
        upto = f"all {end.accelerators:,}" if most is None else f"{most:,}" if most else "nowhere"
        found.append((line.name, upto, f"{percent(end.efficiency)} at {end.accelerators:,}"))
    for name, error in lines.missing.items():
        found.append((name, "—", error.message))
    return found


def ranges(lines: Lines, scales: Sequence[int]) -> list[str]:
    """Which mode is the most efficient from which scale on, in words."""
    told, ahead = [], None
    for scale, name in best(lines.lines, scales):
        after = f": it overtakes {ahead} there" if ahead else ""
        told.append(f"{name} is the most efficient from {scale:,} accelerators on{after}")
        ahead = name
    return told


def measured_rows(measured: Sequence[MeasuredScale], inputs: Inputs) -> Table:
    """Measured efficiencies beside the predicted ones, the names first; none without any."""
    if not measured:
        return []
    found: Table = [("series", "M × P", "measured", "predicted", "error")]
    for each in measured:
        predicted = predict(each.inputs or inputs, each.models, each.ranks).efficiency
        error = predicted / each.efficiency - 1
        told = (percent(each.efficiency), percent(predicted), f"{100 * error:+.1f} %")
        found.append((each.series, f"{each.models:,} × {each.ranks:,}", *told))
    return found


def published_rows(validation: Validation) -> Table:
    """Every published cell beside its prediction, the names first."""
    found: Table = [("workload", "figure", "GPUs", "published", "predicted", "error", "")]
    for cell in validation.cells:
        digits = ".0f" if cell.published > 10 else ".2f"
        found.append(
            (
                cell.series,
                cell.figure,
                str(cell.gpus),
                format(cell.published, digits),
                format(cell.predicted, digits),
                f"{100 * cell.error:+.1f} %",
                "fitted" if cell.fitted else "",
            )
        )
    return found


def calibration(validation: Validation) -> str:
    """The one parameter, its values, and what else of the predictions was published."""
    values = ", ".join(f"{name} {value:.2f}" for name, value in validation.pace.items())
    return (
        f"one parameter, fitted once a workload: {CALIBRATED} ({values}); the step's time is taken"
        " from the published efficiency of 64, which is one of the fitted cells"
    )


def _shown(name: str, value: object) -> str:
    key = name.partition(".")[2]
    if not isinstance(value, int | float):
        return str(value)
    if key.endswith("_s"):
        return seconds(float(value))
    unit = next((unit for part, unit in _UNITS.items() if part in key), None)
    if unit:
        return quantity(float(value), unit)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _long(time_s: float | None) -> str:
    """A duration that may be days."""
    if time_s is None or time_s < 3600:
        return seconds(time_s)
    hours = time_s / 3600
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:,.1f} days"
