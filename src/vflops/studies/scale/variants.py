"""Experiments with variants of a training run, as in HPC AI500.

*optimisations* (figure 8 of V3.0) compares the original, mixed precision, compressed communication,
and both, with more and more models; *data-parallel* (figure 4 of V2.0) does the same with more and
more ranks of one model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.launch.factory import launcher_class
from vflops.results.score.figure_text import NOT_REACHED, number
from vflops.studies.scale import scale_charts, usage_view
from vflops.studies.scale.axis import marks
from vflops.studies.scale.ensembles import Ensembles
from vflops.studies.scale.point_figures import EnsembleFigures
from vflops.studies.scale.scale_charts import SI, Curve, HorizontalAxis
from vflops.studies.scale.scale_result import Point, Scale, Size
from vflops.units import percent, quantity, seconds


@dataclass(frozen=True)
class Variants(Ensembles):
    """An axis with several variants at every size; each is compared with the first variant."""

    named_columns = 1

    def words(self, size: Size) -> str:
        """Return a size as text, such as ``mixed, 1 model × 2 ranks``."""
        return f"{size.variant}, {super().words(size)}"

    def settings_for(self, size: Size) -> dict[str, str]:
        """Return the settings of how ranks share a model, overridden by those of the variant."""
        (variant,) = (v for v in self.variants if v.name == size.variant)
        return {**super().settings_for(size), **variant.settings}

    def unsupported_reason(self, settings: Callable[[], Settings], workload: str) -> str | None:
        """Return also that the device lacks the precision."""
        reason = super().unsupported_reason(settings, workload)
        if reason is not None:
            return reason
        loaded = settings()
        if not launcher_class(loaded.launch.on).is_this_machine:  # others are unknown
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

    @property
    def _first(self) -> str:
        return self.variants[0].name

    def table(self, scale: Scale) -> list[Sequence[str]]:
        """Return speed and quality of every variant at every size."""
        names = self._columns(scale)
        rows: list[Sequence[str]] = [names]
        for point in scale.points:
            figures = point.figures
            start = (point.variant or "", self._size(point))
            if isinstance(figures, EnsembleFigures):
                *others, last = self._cells(figures)
                rows.append((*start, *others, last + marks(figures)))
            else:
                blank = ("—",) * (len(names) - 3)
                rows.append((*start, *blank, "refused" if point.refused else "not complete"))
        return rows

    def _columns(self, scale: Scale) -> tuple[str, ...]:
        """Return the names of the columns; the first two are the variant and its size."""
        names = ("FLOPS", "efficiency", scale.vflops_name, "speed-up")
        return ("variant", "M × P", *names, scale.quality_name or "quality", "to target")

    def _cells(self, figures: EnsembleFigures) -> tuple[str, ...]:
        """Return the figures of a point for the other columns."""
        change = f" ({signed(figures.quality_change)})" if figures.quality_change else ""
        return (
            quantity(figures.flops, "FLOPS"),
            percent(figures.efficiency),
            quantity(figures.vflops, "VFLOPS"),
            times(figures.speedup),
            number(figures.quality) + change,
            seconds(figures.time_to_quality_s),
        )

    def usage_table(self, scale: Scale) -> list[Sequence[str]]:
        """Return how every point used its nodes."""
        return usage_view.usage_table(scale, self._name, "variant, M × P")

    def _main_curves(self, scale: Scale, across: HorizontalAxis) -> list[Curve]:
        """Return lines over slots, or bars if there is a single size."""
        if self._has_one_size(scale):
            return self._bars(scale)
        named = scale.quality_name or "quality"
        speed, valid = self._speed_curves(scale, across)
        return [
            speed,
            self._efficiency_curve(scale, across),
            valid,
            Curve("quality", f"Quality: {named}", self._quality_chart(scale, across)),
        ]

    def _speed_curves(self, scale: Scale, across: HorizontalAxis) -> tuple[Curve, Curve]:
        speed = self._lines(scale, across, "FLOPS", _flops, form=SI)
        valid = self._lines(scale, across, "VFLOPS", _vflops, form=SI)
        return Curve("flops", "FLOPS", speed), Curve("vflops", scale.vflops_name, valid)

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
            Curve("quality", f"Quality: {named}", bars(good, named, number_or_dash, target=target)),
        ]

    def note(self, scale: Scale) -> str:
        """Return an explanation of the columns of the table."""
        return (
            "FLOPS: operations of all models, divided by the time from the first step of the first"
            " model to the end of the last model’s training. VFLOPS: FLOPS × quality factor,"
            " (quality / target)ⁿ but at most 1, so that missing the target lowers the score."
            " Speed-up: FLOPS"
            f" relative to {self._first} at the same size. Efficiency: FLOPS per slot relative to"
            f" the smallest size of the same variant.{scale.open_note} {self._quality_note}"
        )

    @property
    def _quality_note(self) -> str:
        return (
            f"In brackets: quality minus that of {self._first}. To target: the time until the last"
            " single model reached the target, including start-up."
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
        return super()._name(point)

    def _name(self, point: Point) -> str:
        return f"{point.variant}, {super()._name(point)}"

    def _series(self, point: Point, scale: Scale) -> list[str]:
        return [point.variant or ""]


def _flops(figures: EnsembleFigures) -> float | None:
    return figures.flops


def _vflops(figures: EnsembleFigures) -> float | None:
    return figures.vflops


def signed(change: float | None) -> str:
    """Return a change with its sign, such as ``−0.003``."""
    if change is None:
        return "—"
    return f"{change:+.2g}".replace("-", "−") if change else "0"


def number_or_dash(value: float | None) -> str:
    """Return a number as text; ``—`` for None."""
    return "—" if value is None else number(value)


def _reached(time_s: float | None) -> str:
    return NOT_REACHED if time_s is None else seconds(time_s)


def times(speedup: float | None) -> str:
    """Return a speed-up as text, such as ``1.25 ×``."""
    return "—" if speedup is None else f"{scale_charts.ratio_text(speedup)} ×"
