"""The speed and the quality of each precision with more and more ranks.

This is figure 1 of HPC AI500 V2.0: a precision that speeds up micro benchmarks and training may
lose quality as the batch of the model grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

from vflops.config.names import PRECISIONS as CEILING_PRECISIONS
from vflops.config.settings import Settings
from vflops.results.score.figure_text import number
from vflops.studies.scale import scale_charts
from vflops.studies.scale.point_figures import CeilingFigure, EnsembleFigures
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
        """Return the ceilings that precisions are compared with, unless the user chose others."""
        if settings.micro.benchmarks:
            return {}
        named = [_ceiling_precision(variant) for variant in self.variants]
        measured = [name for name in dict.fromkeys(named) if name in CEILING_PRECISIONS]
        return {"micro.benchmarks": list(_CEILINGS), "micro.precisions": measured}

    def _columns(self, scale: Scale) -> tuple[str, ...]:
        quality, against = scale.quality_name or "quality", f"against {self._first}"
        speed = ("FLOPS", scale.vflops_name, "speed-up")
        return ("precision", "P", quality, against, "factor", *speed)

    def _cells(self, figures: EnsembleFigures) -> tuple[str, ...]:
        return (
            number(figures.quality),
            signed(figures.quality_change),
            number_or_dash(figures.quality_factor),
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
            self.rows(scale, lambda f: f.quality_factor),
            across,
            "(quality / target)ⁿ, at most 1",
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
        rows = [
            Row(_CEILINGS.get(benchmark, benchmark), geometric_mean(ratios), variant.name)
            for benchmark, by_variant in self._ratios(scale).items()
            for variant in self.variants
            if (ratios := by_variant.get(variant.name))
        ]
        rows += [
            Row(f"training, P = {point.ranks}", figures.speedup, point.variant or "")
            for point, figures in scale.completed(EnsembleFigures)
        ]
        return rows

    def _ratios(self, scale: Scale) -> dict[str, dict[str, list[float]]]:
        """Return speeds relative to the first variant, by benchmark and by variant.

        Each is that of one operation, which was measured in both precisions.
        """
        speeds = {(c.operation, c.precision): c.flops for c in _ceilings(scale)}
        base_precision = _ceiling_precision(self.variants[0])
        ratios: dict[str, dict[str, list[float]]] = {}
        for operation in dict.fromkeys(operation for operation, _ in speeds):
            base = speeds.get((operation, base_precision))
            for variant in self.variants:
                speed = speeds.get((operation, _ceiling_precision(variant)))
                if base and speed:
                    by_variant = ratios.setdefault(operation[0], {})
                    by_variant.setdefault(variant.name, []).append(speed / base)
        return {name: own for name, own in ratios.items() if len(own) > 1}

    def remarks(self, scale: Scale) -> list[tuple[str, str]]:
        """Return also the ceilings that are missing or in doubt, and how several are averaged."""
        return [*super().remarks(scale), *dict.fromkeys(self._ceiling_remarks(scale))]

    def _ceiling_remarks(self, scale: Scale) -> Iterator[tuple[str, str]]:
        ceilings = {(c.operation, c.precision): c for c in _ceilings(scale)}
        operations = dict.fromkeys(operation for operation, _ in ceilings)
        refused = {point.variant for point in scale.points if point.refused}
        named = [_ceiling_precision(v) for v in self.variants if v.name not in refused]
        for benchmark in self._ratios(scale):
            measured = [o for (o, _), ceiling in ceilings.items() if ceiling.flops is not None]
            cases = dict.fromkeys(case for name, case, _ in measured if name == benchmark)
            if len(cases) > 1:
                shown = _CEILINGS.get(benchmark, benchmark)
                yield shown, f"geometric mean of the relative speeds of {', '.join(cases)}"
        for operation in operations:
            for precision in dict.fromkeys(named):
                ceiling = ceilings.get((operation, precision))
                name = f"{_CEILINGS.get(operation[0], operation[0])} {operation[1]}, {precision}"
                if ceiling is None or ceiling.flops is None:
                    reason = f": {ceiling.doubt}" if ceiling and ceiling.doubt else ""
                    yield name, f"not measured{reason}, so this operation is not compared"
                elif ceiling.doubt:
                    yield name, f"in doubt: {ceiling.doubt}"

    @property
    def _quality_note(self) -> str:
        return f"Against {self._first}: quality minus that of {self._first} at the same P."


def _ceilings(scale: Scale) -> tuple[CeilingFigure, ...]:
    """Return the ceilings of the first point that measured any."""
    done = scale.completed(EnsembleFigures)
    return next((figures.ceilings for _, figures in done if figures.ceilings), ())


def _ceiling_precision(variant: Variant) -> str:
    """Return the precision of the ceiling that bounds a variant."""
    return variant.settings.get("train.precision", "fp32").removeprefix("mixed-")
