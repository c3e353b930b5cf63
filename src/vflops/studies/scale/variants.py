"""Experiments with variants of a training run, as in HPC AI500.

*optimisations* (figure 8 of V3.0) compares the original, mixed precision, compressed communication,
and both, with more and more models; *data-parallel* (figure 4 of V2.0) does the same with more and
more ranks of one model. *precisions* (figure 1 of V2.0) shows the speed and the quality of each
precision with more and more ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import ValidationError

from vflops.config.names import PRECISIONS as CEILING_PRECISIONS
from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.launch.factory import backend
from vflops.results.score.figure_text import NOT_REACHED, number
from vflops.studies.scale import scale_charts, usage_view
from vflops.studies.scale.axis import marks
from vflops.studies.scale.ensembles import Ensembles
from vflops.studies.scale.point_figures import EnsembleFigures
from vflops.studies.scale.scale_charts import SI, Curve, HorizontalAxis, Row
from vflops.studies.scale.scale_result import Point, Scale, Size, Variant
from vflops.units import percent, quantity, seconds

_CEILINGS = {"gemm": "matrix product", "convolution": "convolution"}
"""The micro benchmarks that precisions are compared with, and their names in the picture."""
_TITLES = {
    "optimisations": "Optimisations",
    "data-parallel": "Data parallelism",
    "precisions": "Quality against scale",
}
_FIGURES = {
    "optimisations": "figure 8 of HPC AI500 V3.0",
    "data-parallel": "figures 4 and 5 of HPC AI500 V2.0",
    "precisions": "figure 1 of HPC AI500 V2.0",
}


@dataclass(frozen=True)
class Variants(Ensembles):
    """An axis with several variants at every size; each is compared with the first variant."""

    variants: tuple[Variant, ...] = field(kw_only=True)
    heading: str = "Figures"
    named_columns: int = 1

    def words(self, size: Size) -> str:
        """Return a size as text, such as ``mixed, 1 model × 2 ranks``."""
        return f"{size.variant}, {super().words(size)}"

    def settings_for(self, size: Size) -> dict[str, str]:
        """Return the settings of how ranks share a model, overridden by those of the variant."""
        (variant,) = (v for v in self.variants if v.name == size.variant)
        return {**super().settings_for(size), **variant.settings}

    def unsupported_reason(self, settings: Callable[[], Settings], workload: str) -> str | None:
        """Return how settings contradict each other, or that the device lacks the precision."""
        try:
            loaded = settings()
        except UsageError as error:
            if _contradicts(error):
                return error.message
            raise  # an unknown setting or value
        if not backend(loaded.launch.on).is_this_machine:  # other nodes' devices are not known
            return None
        from vflops.machine.devices import pick
        from vflops.train.precision import Precision

        train = loaded.workloads[workload]["train"]
        device = pick(train["device"], "train.device").torch_device
        try:
            Precision.named(train["precision"], device)
        except UsageError as error:
            return error.message
        return None

    def base_settings(self, settings: Settings) -> dict[str, Any]:
        """Return the ceilings that precisions are compared with, unless the user chose others.

        They are measured on this machine only, before the first point trains.
        """
        if self.kind != "precisions" or settings.micro.benchmarks:
            return {}
        if not backend(settings.launch.on).is_this_machine:
            return {}
        named = [_ceiling_precision(variant) for variant in self.variants]
        measured = [name for name in dict.fromkeys(named) if name in CEILING_PRECISIONS]
        return {"micro.benchmarks": list(_CEILINGS), "micro.precisions": measured}

    @property
    def title(self) -> str:
        """The title of the kind of experiment."""
        return _TITLES[self.kind]

    @property
    def paper_figure(self) -> str:
        """The figure of the paper that the experiment draws."""
        return _FIGURES[self.kind]

    @property
    def _first(self) -> str:
        return self.variants[0].name

    def table(self, scale: Scale) -> list[Sequence[str]]:
        """Return speed and quality of every variant at every size."""
        quality = scale.quality_name or "quality"
        valid = scale.vflops_name
        if self.kind == "precisions":
            against = f"against {self._first}"
            names = ("P", quality, against, "factor", "FLOPS", valid, "speed-up")
            cells = self._quality_cells
        else:
            names = ("M × P", "FLOPS", "efficiency", valid, "speed-up", quality, "to target")
            cells = self._speed_cells
        first = "precision" if self.kind == "precisions" else "variant"
        rows: list[Sequence[str]] = [(first, *names)]
        for point in scale.points:
            figures = point.figures
            start = (point.variant or "", self._size(point))
            if isinstance(figures, EnsembleFigures):
                *others, last = cells(figures)
                rows.append((*start, *others, last + marks(figures)))
            else:
                blank = ("—",) * (len(names) - 2)
                rows.append((*start, *blank, "refused" if point.refused else "not complete"))
        return rows

    def _quality_cells(self, figures: EnsembleFigures) -> tuple[str, ...]:
        return (
            number(figures.quality),
            _signed(figures.quality_change),
            _number(figures.penalty),
            quantity(figures.flops, "FLOPS"),
            quantity(figures.vflops, "VFLOPS"),
            _times(figures.speedup),
        )

    def _speed_cells(self, figures: EnsembleFigures) -> tuple[str, ...]:
        change = f" ({_signed(figures.quality_change)})" if figures.quality_change else ""
        return (
            quantity(figures.flops, "FLOPS"),
            percent(figures.efficiency),
            quantity(figures.vflops, "VFLOPS"),
            _times(figures.speedup),
            number(figures.quality) + change,
            seconds(figures.time_to_quality_s),
        )

    def usage_table(self, scale: Scale) -> list[Sequence[str]]:
        """Return how every point used its nodes."""
        return usage_view.usage_table(scale, self._name, "variant, M × P")

    def _main_curves(self, scale: Scale, across: HorizontalAxis) -> list[Curve]:
        """Return lines over slots, or bars if there is a single size; precisions have a picture."""
        if self.kind == "precisions":
            return [*self._precision_curves(scale, across), self._efficiency_curve(scale, across)]
        if self._has_one_size(scale):
            return self._bars(scale)
        named = scale.quality_name or "quality"
        return [
            Curve("flops", "FLOPS", self._lines(scale, across, "FLOPS", _flops, form=SI)),
            self._efficiency_curve(scale, across),
            Curve(
                "vflops",
                scale.vflops_name,
                self._lines(scale, across, "VFLOPS", _vflops, form=SI),
            ),
            Curve("quality", f"Quality: {named}", self._quality_chart(scale, across)),
        ]

    def _bars(self, scale: Scale) -> list[Curve]:
        named = scale.quality_name or "quality"
        target = None if scale.target is None else ("target", scale.target)
        words = {unit: partial(quantity, unit=unit) for unit in ("FLOPS", "VFLOPS")}
        bars = scale_charts.bars
        time = self.rows(scale, lambda f: f.time_to_quality_s)
        good = self.rows(scale, lambda f: f.quality)
        return [
            Curve("flops", "FLOPS", bars(self.rows(scale, _flops), "FLOPS", words["FLOPS"])),
            Curve(
                "vflops",
                scale.vflops_name,
                bars(self.rows(scale, _vflops), "VFLOPS", words["VFLOPS"]),
            ),
            Curve("time-to-quality", "Time to the target", bars(time, "seconds", _reached)),
            Curve("quality", f"Quality: {named}", bars(good, named, _number, target=target)),
        ]

    def _precision_curves(self, scale: Scale, across: HorizontalAxis) -> list[Curve]:
        """Return the speed-up of micro benchmarks and training above the quality, and the rest."""
        speed = scale_charts.grouped_bars(self._speedups(scale), f"speed relative to {self._first}")
        picture = scale_charts.stacked(speed, self._quality_chart(scale, across))
        factor = scale_charts.lines(
            self.rows(scale, lambda f: f.penalty),
            across,
            "(quality / target)ⁿ",
            target=("at the target:", 1.0),
        )
        return [
            Curve("picture", "Speed and quality of each precision", picture),
            Curve("factor", "Quality factor", factor),
            Curve("flops", "FLOPS", self._lines(scale, across, "FLOPS", _flops, form=SI)),
            Curve(
                "vflops",
                scale.vflops_name,
                self._lines(scale, across, "VFLOPS", _vflops, form=SI),
            ),
        ]

    def _speedups(self, scale: Scale) -> list[Row]:
        """Return FLOPS relative to the first precision: of ceilings, and of training at every P."""
        done = list(scale.completed(EnsembleFigures))
        measured = {(c.benchmark, c.precision): c.flops for _, f in done for c in f.ceilings}
        rows = []
        for benchmark in dict.fromkeys(benchmark for benchmark, _ in measured):
            base = measured.get((benchmark, _ceiling_precision(self.variants[0])))
            for variant in self.variants:
                speed = measured.get((benchmark, _ceiling_precision(variant)))
                if base and speed:
                    rows.append(
                        Row(_CEILINGS.get(benchmark, benchmark), speed / base, variant.name)
                    )
        rows += [
            Row(f"training, P = {point.ranks}", figures.speedup, point.variant or "")
            for point, figures in done
        ]
        return rows

    def note(self, scale: Scale) -> str:
        """Return an explanation of the columns of the table."""
        speed = (
            "FLOPS: operations of all models, divided by the time from the first step of the first"
            " model to the end of the last model’s training. VFLOPS: FLOPS × quality factor,"
            " (quality / target)ⁿ, so that a loss of quality lowers the score. Speed-up: FLOPS"
            f" relative to {self._first} at the same size. Efficiency: FLOPS per slot relative to"
            f" the smallest size of the same variant.{scale.open_note}"
        )
        if self.kind == "precisions":
            return (
                f"{speed} Against {self._first}: quality minus that of {self._first} at the same P."
            )
        return (
            f"{speed} In brackets: quality minus that of {self._first}. To target: the time until"
            " the last single model reached the target, including start-up."
        )

    def remarks(self, scale: Scale) -> list[tuple[str, str]]:
        """Return the variants that cannot be run here, and those whose precision is emulated."""
        remarks = [(p.variant or "", f"refused: {p.refused}") for p in scale.points if p.refused]
        remarks += [
            (point.variant or "", figures.emulated)
            for point, figures in scale.completed(EnsembleFigures)
            if figures.emulated
        ]
        return [*super().remarks(scale), *dict.fromkeys(remarks), *self._other_bases(scale)]

    def _other_bases(self, scale: Scale) -> list[tuple[str, str]]:
        """Return the variants whose smallest size is larger than that of the first variant."""
        slots = scale.base.size.slots
        bases = [scale.base_of(name) for name in dict.fromkeys(p.variant for p in scale.points)]
        return [
            (
                base.variant or "",
                f"its smallest size is {base.jobs} × {base.ranks}, so its efficiency is relative to"
                " more slots than that of other variants",
            )
            for base in bases
            if base.size.slots > slots and not base.refused
        ]

    def across(self, scale: Scale) -> HorizontalAxis:
        """Return the horizontal axis of the charts: slots, or the ranks of the only model."""
        if self.kind == "optimisations":
            return super().across(scale)
        ranks = sorted({point.ranks for point in scale.points})
        return HorizontalAxis("ranks of the model: P", tuple(ranks))

    def _has_one_size(self, scale: Scale) -> bool:
        return len({point.size.slots for point in scale.points}) == 1

    def _size(self, point: Point) -> str:
        return str(point.ranks) if self.kind == "precisions" else super()._name(point)

    def _name(self, point: Point) -> str:
        return f"{point.variant}, {super()._name(point)}"

    def _series(self, point: Point, scale: Scale) -> list[str]:
        return [point.variant or ""]


def _flops(figures: EnsembleFigures) -> float | None:
    return figures.flops


def _vflops(figures: EnsembleFigures) -> float | None:
    return figures.vflops


def _ceiling_precision(variant: Variant) -> str:
    """Return the precision of the ceiling that bounds a variant."""
    return variant.settings.get("train.precision", "fp32").removeprefix("mixed-")


def _contradicts(error: UsageError) -> bool:
    """Whether the error is about valid settings that contradict each other."""
    cause = error.__cause__
    return isinstance(cause, ValidationError) and cause.errors()[0]["type"] == "value_error"


def _signed(change: float | None) -> str:
    """Return a change with its sign, such as ``−0.003``."""
    if change is None:
        return "—"
    return f"{change:+.2g}".replace("-", "−") if change else "0"


def _number(value: float | None) -> str:
    return "—" if value is None else number(value)


def _reached(time_s: float | None) -> str:
    return NOT_REACHED if time_s is None else seconds(time_s)


def _times(speedup: float | None) -> str:
    return "—" if speedup is None else f"{speedup:.2f} ×"
