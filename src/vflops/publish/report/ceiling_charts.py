"""Charts of what the ceiling benchmarks tried; altair is imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vflops.publish.pages.chart_style import COLOURS, apply_style, data
from vflops.record.formats.measurement import Measurement
from vflops.units import quantity

_BINARY = "datum.value >= 1048576 ? datum.value / 1048576 + ' MiB' : datum.value / 1024 + ' KiB'"


def shape_search(measurements: Sequence[Measurement]) -> dict[str, Any] | None:
    """Return the speed of every tried matrix product by its work; None without any."""
    import altair as alt

    rows = [
        {
            "precision": item.precision,
            "work": 2 * _integer(trial.setting, "m", "n", "k"),
            "flops": trial.value,
            "shape": " ".join(f"{key}={value}" for key, value in trial.setting.items()),
            "speed": quantity(trial.value, "FLOPS"),
        }
        for item in measurements
        if item.benchmark == "gemm"
        for trial in item.tried
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
            .legend(orient="top", title=None, values=sorted({str(r["precision"]) for r in rows})),
            tooltip=["precision:N", "shape:N", "speed:N"],
        )
        .properties(width=820, height=260)
    )
    return apply_style(chart)


def message_sizes(measurements: Sequence[Measurement]) -> dict[str, Any] | None:
    """Return the all-reduce bus bandwidth over message sizes; None without any."""
    import altair as alt

    rows: list[dict[str, Any]] = [
        {
            "case": item.case,
            "bytes": _integer(trial.setting, "size_bytes"),
            "bandwidth": trial.value,
            "speed": quantity(trial.value, "B/s"),
        }
        for item in measurements
        if item.benchmark == "all-reduce"
        for trial in item.tried
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
            .axis(values=ticks, labelExpr=_BINARY),
            y=alt.Y("bandwidth:Q").title("bus bandwidth, B/s").axis(format="~s"),
            detail="case:N",
            tooltip=["case:N", "bytes:Q", "speed:N"],
        )
        .properties(width=820, height=220)
    )
    return apply_style(chart)


def _integer(setting: dict[str, int | str], *keys: str) -> int:
    product = 1
    for key in keys:
        product *= int(setting.get(key, 1))
    return product
