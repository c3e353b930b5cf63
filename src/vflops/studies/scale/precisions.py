"""The speed and the quality of each precision with more and more ranks.

This is figure 1 of HPC AI500 V2.0: a precision that speeds up micro benchmarks and training may
lose quality as the batch of the model grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vflops.config.names import PRECISIONS as CEILING_PRECISIONS
from vflops.config.settings import Settings
from vflops.launch.factory import backend
from vflops.results.score.figure_text import number
from vflops.studies.scale import scale_charts
from vflops.studies.scale.point_figures import EnsembleFigures
from vflops.studies.scale.scale_charts import Curve, HorizontalAxis, Row
from vflops.studies.scale.scale_result import Point, Scale, Variant
from vflops.studies.scale.variants import Variants, number_or_dash, signed, times
from vflops.units import quantity

_CEILINGS = {"gemm": "matrix product", "convolution": "convolution"}
"""The micro benchmarks that precisions are compared with, and their names in the picture."""


@dataclass(frozen=True)
class Precisions(Variants):
    """An axis along which one model gets more ranks, in each precision."""

    def base_settings(self, settings: Settings) -> dict[str, Any]:
        """Return the ceilings that precisions are compared with, unless the user chose others.

        They are measured on this machine only, before the first point trains.
        """
        if settings.micro.benchmarks or not backend(settings.launch.on).is_this_machine:
            return {}
        named = [_ceiling_precision(variant) for variant in self.variants]
        measured = [name for name in dict.fromkeys(named) if name in CEILING_PRECISIONS]
        return {"micro.benchmarks": list(_CEILINGS), "micro.precisions": measured}

    @property
    def title(self) -> str:
        """The title of the kind of experiment."""
        return "Quality against scale"

    @property
    def paper_figure(self) -> str:
        """The figure of the paper that the experiment draws."""
        return "figure 1 of HPC AI500 V2.0"

    def _columns(self, scale: Scale) -> tuple[str, ...]:
        quality, against = scale.quality_name or "quality", f"against {self._first}"
        speed = ("FLOPS", scale.vflops_name, "speed-up")
        return ("precision", "P", quality, against, "factor", *speed)

    def _cells(self, figures: EnsembleFigures) -> tuple[str, ...]:
        return (
            number(figures.quality),
            signed(figures.quality_change),
            number_or_dash(figures.penalty),
            quantity(figures.flops, "FLOPS"),
            quantity(figures.vflops, "VFLOPS"),
            times(figures.speedup),
        )

    def _size(self, point: Point) -> str:
        return str(point.ranks)

    def _main_curves(self, scale: Scale, across: HorizontalAxis) -> list[Curve]:
        """Return the speed of micro benchmarks and training above the quality, and the rest."""
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
            *self._speed_curves(scale, across),
            self._efficiency_curve(scale, across),
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

    @property
    def _quality_note(self) -> str:
        return f"Against {self._first}: quality minus that of {self._first} at the same P."


def _ceiling_precision(variant: Variant) -> str:
    """Return the precision of the ceiling that bounds a variant."""
    return variant.settings.get("train.precision", "fp32").removeprefix("mixed-")
