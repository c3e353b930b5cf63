"""Charts of the settings that the ceiling benchmarks tried; altair is imported when needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vflops.publish.pages.chart_style import COLOURS, apply_style, data, tooltips
from vflops.record.formats.measurement import Measurement
from vflops.units import quantity

_BINARY_LABEL = (
    "datum.value >= 1048576 ? datum.value / 1048576 + ' MiB' : datum.value / 1024 + ' KiB'"
)


def shape_search(measurements: Sequence[Measurement]) -> dict[str, Any] | None:
    """Return a chart of the speed of matrix products by size; None if none was tried."""
    import altair as alt

    rows = [
        {
            "precision": measurement.precision,
            "work": 2 * _setting_product(trial.setting, "m", "n", "k"),
            "flops": trial.value,
            "shape": " ".join(f"{key}={value}" for key, value in trial.setting.items()),
            "speed": quantity(trial.value, "FLOPS"),
        }
        for measurement in measurements
        if measurement.benchmark == "gemm"
        for trial in measurement.tried
    ]
    if not rows:
        return None
    chart = (
        alt.Chart(data(rows))
        .mark_point(filled=True, size=45, opacity=0.75)
        .encode(
            x=alt.X("work:Q")
            .scale(type="log")
            .title("operations of one product")
            .axis(format="~s"),
            y=alt.Y("flops:Q").title("FLOPS").axis(format="~s"),
            color=alt.Color("precision:N")
            .scale(domain=list(COLOURS), range=list(COLOURS.values()))
            .legend(
                orient="top", title=None, values=sorted({str(row["precision"]) for row in rows})
            ),
            tooltip=tooltips("precision:N", "shape:N", "speed:N"),
        )
        .properties(width=820, height=260)
    )
    return apply_style(chart)


def message_sizes(measurements: Sequence[Measurement]) -> dict[str, Any] | None:
    """Return a chart of the all-reduce bandwidth by message size; None if not measured."""
    import altair as alt

    rows: list[dict[str, Any]] = [
        {
            "case": measurement.case,
            "bytes": _setting_product(trial.setting, "size_bytes"),
            "bandwidth": trial.value,
            "speed": quantity(trial.value, "B/s"),
        }
        for measurement in measurements
        if measurement.benchmark == "all-reduce"
        for trial in measurement.tried
    ]
    if not rows:
        return None
    ticks = sorted({row["bytes"] for row in rows})[::2]
    chart = (
        alt.Chart(data(rows))
        .mark_line(point=True, color="#2f6fb0")
        .encode(
            x=alt.X("bytes:Q")
            .scale(type="log", base=2)
            .title("message")
            .axis(values=ticks, labelExpr=_BINARY_LABEL),
            y=alt.Y("bandwidth:Q").title("bus bandwidth, B/s").axis(format="~s"),
            detail=alt.Detail("case:N"),
            tooltip=tooltips("case:N", "bytes:Q", "speed:N"),
        )
        .properties(width=820, height=220)
    )
    return apply_style(chart)


def _setting_product(setting: dict[str, int | str], *keys: str) -> int:
    product = 1
    for key in keys:
        product *= int(setting.get(key, 1))
    return product
