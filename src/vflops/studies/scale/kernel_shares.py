"""The shares of each kind of kernel in a training step, as in figure 2 of HPC AI500 V2.0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vflops.config.settings import Settings
from vflops.machine.telemetry.kernel_names import KINDS
from vflops.publish.pages.chart_style import SERIES, apply_style, data, tooltips
from vflops.publish.report.training_charts import WIDTH
from vflops.studies.scale.ensembles import Ensembles
from vflops.studies.scale.point_figures import EnsembleFigures
from vflops.studies.scale.scale_charts import Curve, HorizontalAxis
from vflops.studies.scale.scale_result import Scale, Size
from vflops.units import percent

_COLOURS = (*SERIES[:7], "#b6bec9", "#7f7f7f")
"""The colours of the kinds of kernels."""
_LABELLED = 0.07
"""A smaller share has no room for its label."""


@dataclass(frozen=True)
class KernelShares(Ensembles):
    """An axis along which one model gets more ranks, while a few of its steps are profiled."""

    heading = "Shares of kernel time"
    named_columns = 1
    row_per_point = False

    def common_settings(
        self, settings: Settings, workload: str, sizes: Sequence[Size]
    ) -> dict[str, Any]:
        """Return the setting that profiles a few steps."""
        return {"telemetry.kernels": "true"}

    def table(self, scale: Scale) -> list[Sequence[str]]:
        """Return one row per kind of kernel, with its share at every number of ranks."""
        shares = {
            point.ranks: {kernel.kind: kernel.share for kernel in figures.kernels}
            for point, figures in scale.completed(EnsembleFigures)
        }
        ranks = [point.ranks for point in scale.points]
        rows: list[Sequence[str]] = [("kernels", *(f"P = {number}" for number in ranks))]
        for kind in kinds_of([scale]):
            found = [shares.get(number) for number in ranks]
            cells = [percent(share.get(kind, 0.0) if share else None) for share in found]
            rows.append((kind, *cells))
        return rows

    def _main_curves(self, scale: Scale, across: HorizontalAxis) -> list[Curve]:
        drawn = kernel_chart([scale])
        return [Curve("kernels", "Shares of kernel time", drawn)] if drawn else []

    def note(self, scale: Scale) -> str:
        """Return an explanation of the columns of the table."""
        return (
            "Shares of the kernel time of a few steps of rank 0: device time on an accelerator, on"
            " a CPU the self time of operators. Kernels of concurrent streams are added up. A fused"
            " kernel counts as its most expensive operator."
        )


def kinds_of(scales: Sequence[Scale]) -> list[str]:
    """Return the kinds of kernels that occur, in a fixed order; unknown names come last."""
    found = {
        kernel.kind: None
        for scale in scales
        for _, figures in scale.completed(EnsembleFigures)
        for kernel in figures.kernels
        if kernel.share >= 0.0005  # shown as 0.0 %
    }
    return [kind for kind in KINDS if kind in found] + [k for k in found if k not in KINDS]


def kernel_chart(scales: Sequence[Scale]) -> dict[str, Any] | None:
    """Return one stacked bar per workload and number of ranks; None if nothing was profiled."""
    import altair as alt

    kinds = kinds_of(scales)
    rows = [
        piece
        for scale in scales
        for point, figures in scale.completed(EnsembleFigures)
        for piece in _pieces(f"{scale.workload}, P = {point.ranks}", figures, kinds)
    ]
    if not rows:
        return None
    bars = list(dict.fromkeys(row["bar"] for row in rows))
    y = alt.Y("bar:N").sort(bars).title(None).axis(domain=False, ticks=False, labelLimit=260)
    x = alt.X("start:Q").scale(domain=[0, 1]).title("share of kernel time")
    base = alt.Chart(data(rows)).encode(y=y, tooltip=tooltips("bar:N", "kind:N", "label:N"))
    colours = alt.Color("kind:N").scale(domain=kinds, range=[_colour(kind) for kind in kinds])
    drawn = base.mark_bar(height=26).encode(
        x=x.axis(format="%", tickCount=6),
        x2=alt.X2("end:Q"),
        color=colours.legend(orient="bottom", title=None, columns=5),
    )
    labels = base.transform_filter(f"datum.end - datum.start > {_LABELLED}")
    text = labels.mark_text(color="white", fontWeight="bold").encode(
        x=alt.X("middle:Q"), text=alt.Text("label:N")
    )
    return apply_style((drawn + text).properties(width=WIDTH - 60, height=40 * len(bars)))


def _pieces(bar: str, figures: EnsembleFigures, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """Return the pieces of one bar, with their positions."""
    pieces, start = [], 0.0
    shares = {kernel.kind: kernel.share for kernel in figures.kernels}
    for kind in kinds:
        if share := shares.get(kind):
            end = start + share
            piece = {"bar": bar, "kind": kind, "start": start, "end": end}
            pieces.append({**piece, "middle": (start + end) / 2, "label": percent(share)})
            start = end
    return pieces


def _colour(kind: str) -> str:
    index = [str(known) for known in KINDS].index(kind) if kind in KINDS else -1
    return _COLOURS[index % len(_COLOURS)]
