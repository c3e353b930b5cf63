"""Makes a forecast of the scaling of a training run, from a run, measurements or given figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from vflops.config.flatten import flatten
from vflops.errors import UsageError
from vflops.record.readout.contents import Contents
from vflops.results.check.background_load import check_background_load
from vflops.studies.predict.from_run import read_inputs
from vflops.studies.predict.inputs import MAX_ACCELERATORS, load, read_user_inputs
from vflops.studies.predict.measured_points import read_measurements
from vflops.studies.predict.predict_page import Forecast
from vflops.studies.predict.predict_text import input_rows
from vflops.studies.predict.scaling_model import predict
from vflops.studies.predict.sweeps import (
    exchange_lines,
    fitting_scales,
    parallel_lines,
    scales_up_to,
)
from vflops.studies.predict.validation import MeasuredEfficiency

DEFAULT_UPTO = 1024
"""The default of ``--upto``, the largest number of accelerators."""


def make_forecast(
    run: Contents | None,
    models: Sequence[int],
    ranks: Sequence[int],
    upto: int | None,
    measured: Path | None,
    config: Path | None,
    assignments: list[str],
) -> Forecast:
    """Return the forecast; raise UsageError if a figure is missing that it needs.

    The points are all pairs of ``models`` and ``ranks``; if ``ranks`` is empty, the number of ranks
    doubles up to ``upto`` accelerators.
    """
    if upto is not None and not 1 <= upto <= MAX_ACCELERATORS:
        raise UsageError(
            f"--upto {upto}: expected 1 to {MAX_ACCELERATORS:,} accelerators",
            hint=f"e.g. --upto {DEFAULT_UPTO}",
        )
    measurements = read_measurements(measured) if measured else []
    base, sources, absent = _from_run(run)
    if measured and not (run or config or assignments):
        base, sources = _from_measured(measurements, measured)
    inputs = load(base, config, assignments)
    given = _given_names(config, assignments)
    sources = {name: source for name, source in sources.items() if name not in given}
    left_out = None
    try:
        if not ranks:
            ranks, left_out = fitting_scales(inputs, max(1, (upto or DEFAULT_UPTO) // max(models)))
        points = [predict(inputs, m, p) for m in models for p in ranks]
    except UsageError as error:
        raise _with_run_reason(error, absent) from None
    largest = max(upto or DEFAULT_UPTO, *(point.accelerators for point in points))
    scales = sorted({*scales_up_to(inputs, largest), *(point.ranks for point in points)})
    return Forecast(
        inputs=inputs,
        given=input_rows(inputs, sources, absent),
        points=points,
        scales=scales,
        modes=parallel_lines(inputs, scales),
        exchanges=exchange_lines(inputs, scales),
        measured=measurements,
        left_out=left_out,
        warning=_busy_warning(run) if run is not None else None,
    )


def _busy_warning(run: Contents) -> str | None:
    """Return a sentence if other programs used the machine of the run, which slows down steps."""
    load = check_background_load(run)
    if load.verdict != "fail":
        return None
    return (
        f"run {run.folder.record.id} breaks the rule quiet: {load.evidence}. The predictions rest "
        "on its speed, which may be too low."
    )


def _with_run_reason(error: UsageError, absent: Mapping[str, str]) -> UsageError:
    """Return the error, with the reason why the run does not provide a missing figure."""
    missing = error.message.partition(" is not known")[0]
    if missing not in absent:
        return error
    return UsageError(
        f"{error.message}; the run does not provide it: {absent[missing]}", hint=error.hint
    )


def _from_run(
    run: Contents | None,
) -> tuple[dict[str, object], dict[str, str], dict[str, str]]:
    if run is None:
        return {}, {}, {}
    figures = read_inputs(run)
    return figures.sections(), figures.sources, figures.absent


def _from_measured(
    measurements: Sequence[MeasuredEfficiency], file: Path
) -> tuple[dict[str, object], dict[str, str]]:
    """Return the figures and sources of the first point with inputs and several ranks, if any."""
    points = ((p, p.inputs) for p in measurements if p.inputs and p.ranks > 1)
    point, inputs = next(points, (None, None))
    if point is None or inputs is None:
        return {}, {}
    known = {name: value for name, value in inputs.figures().items() if value is not None}
    source = f"{file.name}: {point.series}, {point.models} × {point.ranks}"
    return inputs.model_dump(exclude_unset=True), dict.fromkeys(known, source)


def _given_names(config: Path | None, assignments: list[str]) -> set[str]:
    """Return the names of the figures that the user gave, such as ``step.time_s``."""
    return set(flatten(read_user_inputs(config, assignments)))
