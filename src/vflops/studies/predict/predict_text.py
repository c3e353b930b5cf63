"""The tables and sentences of a prediction, for the terminal and the HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import NamedTuple

from vflops.studies.predict.inputs import Inputs
from vflops.studies.predict.published_scaling import FITTED_PARAMETER, Validation
from vflops.studies.predict.scaling_model import Prediction, predict
from vflops.studies.predict.sweeps import Lines, most_efficient_modes, sharing_mode
from vflops.studies.predict.validation import MeasuredEfficiency
from vflops.units import percent, quantity, seconds

Table = list[tuple[str, ...]]


class InputRow(NamedTuple):
    """An input and its source."""

    name: str
    value: str
    source: str


_UNITS = {"bandwidth": "B/s", "bytes": "B", "power_w": "W", "ops_per_sample": "FLOP"}


def describe_training(inputs: Inputs) -> str:
    """Return the parallel mode and the communication of the training run, in one line."""
    parallel, communication = inputs.parallel, inputs.communication
    mode: str = parallel.mode
    if mode == "mixed":
        sharing = parallel.mesh[1] if parallel.mesh else parallel.sharing
        mode = f"data × {sharing_mode(inputs)} of {sharing or inputs.node.accelerators} ranks"
    elif mode == "model":
        mode = f"model, {parallel.split}"
    if parallel.inner == "pipeline":
        parts = inputs.train.accumulate or "4 per rank"
        mode = f"{mode}, {parallel.schedule}, micro-batches: {parts}"
    hidden = (
        f"{percent(communication.overlap, digits=0)} of a step"
        if communication.overlap
        else "nothing"
    )
    exchange = (
        f"all-reduce by a {communication.algorithm}"
        if communication.mode == "all-reduce"
        else communication.mode
    )
    return (
        f"{mode} · communication: {exchange}, {communication.precision}, "
        f"buckets: {communication.buckets}, hidden behind: {hidden}{_coding(inputs)}"
    )


def _coding(inputs: Inputs) -> str:
    """Return the cost of compression as text; empty without compression."""
    communication = inputs.communication
    if communication.precision == "fp32":
        return ""
    if communication.coding_bandwidth is None:
        return ", coding: assumed to cost nothing (communication.coding_bandwidth is not known)"
    return f", coding: {seconds(inputs.coding_s)}"


def input_rows(
    inputs: Inputs, sources: Mapping[str, str], absent: Mapping[str, str]
) -> list[InputRow]:
    """Return one row per known input with its source, and per missing one with the reason."""
    rows: list[InputRow] = []
    for name, value in inputs.figures().items():
        is_setting = name.startswith(("communication.", "parallel.", "train."))
        if is_setting and name != "communication.coding_bandwidth":
            continue
        if value is not None:
            rows.append(InputRow(name, _format_value(name, value), sources.get(name, "given")))
        elif name in absent:
            rows.append(InputRow(name, "—", f"not known: {absent[name]}"))
    return rows


def prediction_rows(points: Sequence[Prediction]) -> Table:
    """Return the column names and the figures of every M × P; empty columns are left out.

    VFLOPS and time stay as dashes if a batch is too large to predict them: ``notes`` says why.
    """
    names = ("M × P", "slots", "step", "bubble", "waits", "sent", "efficiency")
    rows: Table = [(*names, "FLOPS", "VFLOPS", "VFLOPS/W", "time", "energy")]
    several = any(point.models > 1 for point in points)
    bubbles = any(point.step.bubble_s for point in points)
    for point in points:
        step = point.step
        rows.append(
            (
                f"{point.models:,} × {point.ranks:,}",
                f"{point.accelerators:,}" if several else "—",
                seconds(step.total_s),
                seconds(step.bubble_s) if bubbles else "—",
                seconds(step.exchange_s + step.reading_s),
                quantity(point.sent_bytes, "B") if point.sent_bytes else "—",
                percent(point.efficiency),
                quantity(point.flops, ""),
                quantity(point.vflops, ""),
                quantity(point.vflops_per_w, ""),
                _format_duration(point.time_s),
                quantity(point.energy_j, "J"),
            )
        )
    always_shown = ("VFLOPS", "time") if any(point.reason for point in points) else ()
    is_shown = [
        name in always_shown or any(row[index] != "—" for row in rows[1:])
        for index, name in enumerate(rows[0])
    ]
    return [tuple(compress(row, is_shown)) for row in rows]


def notes(points: Sequence[Prediction], inputs: Inputs) -> list[str]:
    """Return remarks on the table: why figures are missing, and what VFLOPS assumes."""
    remarks = []
    large = [point for point in points if point.reason]
    if large:
        first = min(large, key=lambda point: point.ranks)
        remarks.append(
            f"no time, energy or VFLOPS from P = {first.ranks:,} on: {first.reason}, and the"
            " quality with such a batch is not known; use more models or a smaller step.batch"
        )
    if any(point.vflops is not None for point in points):
        remarks.append(
            "VFLOPS and time assume the quality factor and the epochs of the measured batch; here"
            f" the batch is step.batch × P, {inputs.step.batch:,} × P, and a larger one may need"
            " more epochs or reach a lower quality"
        )
    return remarks


def paying_rows(lines: Lines, scales: Sequence[int]) -> Table:
    """Return the column names, and up to which scale each mode pays off or why it is missing."""
    rows: Table = [("mode", "pays off up to", "efficiency at most")]
    for line in lines.lines:
        most = line.pays_up_to(scales)
        end = line.points(scales)[-1]
        upto = f"all {end.accelerators:,}" if most is None else f"{most:,}" if most else "nowhere"
        rows.append((line.name, upto, f"{percent(end.efficiency)} at {end.accelerators:,}"))
    for name, error in lines.missing.items():
        rows.append((name, "—", error.message))
    return rows


def most_efficient_sentences(lines: Lines, scales: Sequence[int]) -> list[str]:
    """Return one sentence per mode that is the most efficient one from some scale on."""
    sentences, ahead = [], None
    for scale, name in most_efficient_modes(lines.lines, scales):
        after = f": it overtakes {ahead} there" if ahead else ""
        sentences.append(f"{name} is the most efficient from {scale:,} accelerators on{after}")
        ahead = name
    return sentences


def measured_rows(measured: Sequence[MeasuredEfficiency], inputs: Inputs) -> Table:
    """Return the column names, and measured and predicted efficiencies; empty without any."""
    if not measured:
        return []
    rows: Table = [("series", "M × P", "measured", "predicted", "error")]
    for point in measured:
        predicted = predict(point.inputs or inputs, point.models, point.ranks).efficiency
        error = predicted / point.efficiency - 1
        cells = (percent(point.efficiency), percent(predicted), f"{100 * error:+.1f} %")
        rows.append((point.series, f"{point.models:,} × {point.ranks:,}", *cells))
    return rows


def published_rows(validation: Validation) -> Table:
    """Return the column names, and every published figure with its prediction."""
    rows: Table = [("workload", "figure", "GPUs", "published", "predicted", "error", "")]
    for cell in validation.cells:
        digits = ".0f" if cell.published > 10 else ".2f"
        rows.append(
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
    return rows


def calibration(validation: Validation) -> str:
    """Return a sentence with the fitted parameter, its values, and the source of the step time."""
    values = ", ".join(f"{name} {value:.2f}" for name, value in validation.link_rates.items())
    return (
        f"One parameter is fitted per workload: {FITTED_PARAMETER} ({values}). The step time is"
        " derived from the published efficiency of 64 GPUs, which is one of the fitted figures."
    )


def _format_value(name: str, value: object) -> str:
    key = name.partition(".")[2]
    if not isinstance(value, int | float):
        return str(value)
    if key.endswith("_s"):
        return seconds(float(value))
    unit = next((unit for part, unit in _UNITS.items() if part in key), None)
    if unit:
        return quantity(float(value), unit)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _format_duration(time_s: float | None) -> str:
    """Return a duration in seconds, hours or days."""
    if time_s is None or time_s < 3600:
        return seconds(time_s)
    hours = time_s / 3600
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:,.1f} days"
