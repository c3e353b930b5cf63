"""Scaling experiments with ensembles of M models × P ranks, as in HPC AI500 V3.0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import ValidationError

from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.results.score.figure_text import number
from vflops.studies.scale import scale_charts, usage_view
from vflops.studies.scale.axis import Axis, marks
from vflops.studies.scale.ensemble_figures import ensemble_figures
from vflops.studies.scale.point_figures import EnsembleFigures
from vflops.studies.scale.scale_charts import (
    IDEAL,
    MEASURED,
    PERCENT,
    SI,
    Curve,
    HorizontalAxis,
    Row,
)
from vflops.studies.scale.scale_result import Point, Scale, Size
from vflops.units import percent, quantity, seconds
from vflops.workloads.contract.run_settings import workload_settings


@dataclass(frozen=True)
class Ensembles(Axis):
    """An axis along which the number of models grows, or the number of ranks per model."""

    def changes(self, section: dict[str, Any], size: Size) -> dict[str, Any]:
        """Return the number of models and ranks, and how these share a model."""
        return {
            "bagging.models": size.jobs,
            "models": size.jobs,
            "train.ranks": size.ranks,
            **self.settings_for(size),
        }

    def unsupported_reason(self, settings: Callable[[], Settings], workload: str) -> str | None:
        """Return how settings contradict each other, or that the batch is too small."""
        from vflops.run.validate import check_batch
        from vflops.workloads.contract.registry import workload as find_workload

        try:
            loaded = settings()
        except UsageError as error:
            if _contradicts(error):
                return error.message
            raise  # an unknown setting or value
        (section,) = workload_settings(loaded).values()
        try:
            check_batch(loaded, find_workload(workload), section.train)
        except UsageError as error:
            return f"{error.message}: {error.hint}"
        return None

    def check_size(self, settings: Settings, workload: str, size: Size) -> None:
        """Raise UsageError if settings are missing, or models do not fit on the nodes at once."""
        from vflops.launch.factory import launcher_class
        from vflops.launch.node_layout import check_layout
        from vflops.studies.scale.node_shares import placed
        from vflops.workloads.contract.registry import workload as find_workload

        spec = find_workload(workload)
        if size.jobs > 1 and not spec.can_be_bagged:
            raise UsageError(
                f"{workload} cannot be an ensemble, but a point has {size.jobs} models",
                hint="use --scales 1, or add ranks instead of models: --kind data-parallel",
            )
        section = workload_settings(settings)[workload]
        spec.load_code().check_settings(section)
        if size.jobs > 1:
            spec.load_code().check_ensemble(section)
        placement = placed(settings, workload, size)
        check_layout(launcher_class(settings.launch.on), placement.nodes, size.ranks)

    def goal(self, record: JobRecord) -> tuple[str, float]:
        """Return the name of the quality measure, and its target."""
        return record.goal.quality, record.goal.target

    def figures(self, folder: RunFolder, size: Size) -> EnsembleFigures:
        """Return the means over the repeats; a single model is timed like an ensemble."""
        return ensemble_figures(folder, size)

    def table(self, scale: Scale) -> list[Sequence[str]]:
        """Return speed, time and quality of every point."""
        quality = scale.quality_name or "quality"
        valid = scale.vflops_name
        second = scale.speed_unit if self._is_trade_off else "slots"
        speeds = ("FLOPS", "of an epoch", "efficiency", valid, "efficiency")
        names = (second, *speeds, "time", quality, "alone")
        rows: list[Sequence[str]] = [("M × P", *names)]
        for point in scale.points:
            figures = point.figures
            if not isinstance(figures, EnsembleFigures):
                slots = "—" if self._is_trade_off else str(point.size.slots)
                rows.append(
                    (
                        self._name(point),
                        slots,
                        *("—",) * 7,
                        "refused" if point.refused else "not complete",
                    )
                )
                continue
            rows.append(
                (
                    self._name(point),
                    quantity(figures.units_per_s, "").strip()
                    if self._is_trade_off
                    else str(point.size.slots),
                    quantity(figures.flops, "FLOPS"),
                    quantity(figures.flops_epoch, "FLOPS"),
                    percent(figures.efficiency),
                    quantity(figures.vflops, "VFLOPS"),
                    percent(figures.efficiency_valid),
                    seconds(figures.window_s),
                    number(figures.quality),
                    number(figures.quality_alone) + marks(figures),
                )
            )
        return rows

    def curves(self, scale: Scale) -> list[Curve]:
        """Return charts of speed, time and quality over slots or, for a trade-off, over M × P."""
        if not any(point.figures for point in scale.points):
            return []
        across = self.across(scale)
        time = Curve("time", "Time", self._lines(scale, across, "seconds", lambda f: f.window_s))
        return [
            *self._main_curves(scale, across),
            *([] if self._has_one_size(scale) else [time]),
            *usage_view.usage_curves(scale, self._name),
            *usage_view.bandwidth_curve(
                scale, across, self._at, partial(self._series, scale=scale)
            ),
        ]

    def usage_table(self, scale: Scale) -> list[Sequence[str]]:
        """Return how every point used its nodes."""
        return usage_view.usage_table(scale, self._name, "M × P")

    def _main_curves(self, scale: Scale, across: HorizontalAxis) -> list[Curve]:
        """Return the charts that the paper draws: speed, efficiency and quality."""
        quality = self._quality_chart(scale, across)
        shown = Curve("quality", f"Quality: {scale.quality_name or 'quality'}", quality)
        speed = self.rows(scale, lambda f: f.flops)
        valid = self.rows(scale, lambda f: f.vflops)
        if self._is_trade_off:
            per_model = f"{scale.speed_unit} of a model"
            of_a_model = self._lines(scale, across, per_model, lambda f: f.units_per_s, form=SI)
            both = scale_charts.stacked(of_a_model, quality)
            return [
                Curve("trade-off", "Speed of a model, and quality", both),
                Curve("flops", "FLOPS", scale_charts.lines(speed, across, "FLOPS", form=SI)),
                Curve(
                    "vflops",
                    scale.vflops_name,
                    scale_charts.lines(valid, across, "VFLOPS", form=SI),
                ),
            ]
        ideal = scale_charts.ideal(scale, "rate", max(across.ticks or (1,)))
        if self.kind == "weak":
            rows = [row._replace(series="FLOPS") for row in speed]
            epoch = self.rows(scale, lambda f: f.flops_epoch)
            rows += [row._replace(series="FLOPS of an epoch") for row in epoch]
            rows += [row._replace(series=scale.vflops_name) for row in valid]
            drawn = scale_charts.lines([*rows, *ideal], across, "FLOPS, VFLOPS", form=SI)
            speeds = [Curve("flops", f"FLOPS and {scale.vflops_name}", drawn)]
        else:
            drawn = scale_charts.lines([*speed, *ideal], across, "FLOPS", form=SI)
            ideal = scale_charts.ideal(scale, "valid", max(across.ticks or (1,)))
            weighted = scale_charts.lines([*valid, *ideal], across, "VFLOPS", form=SI)
            speeds = [Curve("flops", "FLOPS", drawn), Curve("vflops", scale.vflops_name, weighted)]
        return [*speeds, self._efficiency_curve(scale, across), shown]

    def _efficiency_curve(self, scale: Scale, across: HorizontalAxis) -> Curve:
        rows = self.rows(scale, lambda f: f.efficiency)
        ends: Sequence[int | str] = across.ticks or [row.at for row in rows]
        rows += [Row(at, 1.0, IDEAL) for at in (*ends[:1], *ends[-1:])]
        drawn = scale_charts.lines(rows, across, "efficiency", form=PERCENT, zero=True)
        return Curve("efficiency", "Efficiency", drawn)

    def _quality_chart(self, scale: Scale, across: HorizontalAxis) -> dict[str, Any]:
        target = None if scale.target is None else ("target", scale.target)
        rows = self.rows(scale, lambda f: f.quality)
        return scale_charts.lines(rows, across, scale.quality_name or "quality", target=target)

    def _lines(
        self,
        scale: Scale,
        across: HorizontalAxis,
        title: str,
        value: Callable[[EnsembleFigures], float | None],
        *,
        form: str | None = None,
    ) -> dict[str, Any]:
        return scale_charts.lines(self.rows(scale, value), across, title, form=form)

    def across(self, scale: Scale) -> HorizontalAxis:
        """Return the horizontal axis of the charts."""
        if self._is_trade_off:  # all points have the same number of slots
            return HorizontalAxis("models × ranks")
        slots = sorted({point.size.slots for point in scale.points})
        return HorizontalAxis("slots: models × ranks", tuple(slots))

    def note(self, scale: Scale) -> str:
        """Return an explanation of the columns of the table."""
        base = f"{scale.base.jobs} × {scale.base.ranks}"
        return (
            "Slots: M × P, equation 5 of HPC AI500 V3.0. Time: from the first step of the first"
            " model to the end of the last model’s training, including its last evaluation. FLOPS:"
            " operations of all models divided by that time. Of an epoch: operations of an epoch"
            " divided by its training time, without evaluations and compilation (equations 4"
            " and 6). Efficiency: FLOPS (VFLOPS) per slot"
            f" relative to {base}. VFLOPS: FLOPS × quality factor, which is at most 1."
            " Quality: that of the ensemble; alone: the mean of single models."
            f"{self._speed_note} If a point was repeated, figures are means.{scale.open_note}"
        )

    @property
    def _speed_note(self) -> str:
        if not self._is_trade_off:
            return ""
        return " Samples/s: the speed of a single model, as the mean over the models."

    def remarks(self, scale: Scale) -> list[tuple[str, str]]:
        """Return the settings for several ranks, and what was not measured."""
        return [*super().remarks(scale), *usage_view.usage_remarks(scale, self._name)]

    def _has_one_size(self, scale: Scale) -> bool:
        """Whether there is no line over sizes to draw."""
        return not self._is_trade_off and len({point.size for point in scale.points}) == 1

    @property
    def _is_trade_off(self) -> bool:
        return self.kind == "trade-off"

    def rows(self, scale: Scale, value: Callable[[EnsembleFigures], float | None]) -> list[Row]:
        """Return a figure of all complete points, as the points of lines."""
        return [
            Row(self._at(point), value(figures), series)
            for point, figures in scale.completed(EnsembleFigures)
            for series in self._series(point, scale)
        ]

    def _name(self, point: Point) -> str:
        return f"{point.jobs} × {point.ranks}"

    def _at(self, point: Point) -> int | str:
        return self._name(point) if self._is_trade_off else point.size.slots

    def _series(self, point: Point, scale: Scale) -> list[str]:
        """Return the names of the curves that a point is on; the smallest point is on both."""
        if self.kind != "bagging-vs-data":
            return [MEASURED]
        ranks = min(point.ranks for point in scale.points)
        both = (
            (point.ranks == ranks, f"bagging, P = {ranks}"),
            (point.jobs == 1, "data parallel, M = 1"),
        )
        return [name for is_on, name in both if is_on]


def _contradicts(error: UsageError) -> bool:
    """Whether the error is about valid settings that contradict each other."""
    cause = error.__cause__
    return isinstance(cause, ValidationError) and cause.errors()[0]["type"] == "value_error"
