"""What each framework costs on this machine: the same network, weights, samples and recipe.

Table 2 of HPC AI500 V3.0 lists frameworks as a choice. A comparison of frameworks usually compares
their models and recipes as well; here only the arithmetic is done by others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from vflops.config.frameworks import NAMES
from vflops.config.settings import Settings
from vflops.errors import UsageError, unknown_name
from vflops.launch.factory import launcher_class
from vflops.results.score.figure_text import number
from vflops.studies.scale import scale_charts
from vflops.studies.scale.point_figures import EnsembleFigures
from vflops.studies.scale.scale_charts import Curve, HorizontalAxis
from vflops.studies.scale.scale_result import Point, Scale, Variant
from vflops.studies.scale.variants import Variants, signed, times
from vflops.units import quantity, seconds


def framework_variants(names: str | None) -> tuple[Variant, ...]:
    """Return one variant per framework, by default all; the first is the base."""
    chosen = [name.strip() for name in names.split(",")] if names is not None else list(NAMES)
    for name in chosen:
        if name not in NAMES:
            raise unknown_name("framework", name, NAMES, where=" in --frameworks")
    if len(set(chosen)) < len(chosen):
        raise UsageError(f"--frameworks {names}: a name is given twice", hint="name each once")
    return tuple(Variant(name=name, settings={"train.framework": name}) for name in chosen)


@dataclass(frozen=True)
class FrameworkComparison(Variants):
    """An axis with one point per framework, and possibly more models."""

    def unsupported_reason(self, settings: Callable[[], Settings], workload: str) -> str | None:
        """Return why a framework cannot train here: not installed, too old, or no such device."""
        reason = super().unsupported_reason(settings, workload)
        if reason is not None:
            return reason
        loaded = settings()
        if not launcher_class(loaded.launch.on).is_this_machine:
            return None
        from vflops.run.validate import require_framework_for

        try:
            require_framework_for(loaded.workloads[workload]["train"])
        except UsageError as error:
            return f"{error.message}: {error.hint}" if error.hint else error.message
        return None

    def _columns(self, scale: Scale) -> tuple[str, ...]:
        quality = scale.quality_name or "quality"
        speed = (scale.speed_unit, "FLOPS", scale.vflops_name, "speed-up", "compilation", "memory")
        return ("framework", "M × P", *speed, "own count", quality, "to target")

    def _cells(self, figures: EnsembleFigures) -> tuple[str, ...]:
        change = f" ({signed(figures.quality_change)})" if figures.quality_change else ""
        speed, compile_s = figures.units_per_s, figures.compilation_s
        return (
            "—" if speed is None else f"{speed:,.0f}",
            quantity(figures.flops, "FLOPS"),
            quantity(figures.vflops, "VFLOPS"),
            times(figures.speedup),
            "—" if compile_s is None else seconds(compile_s),
            "—" if (memory_b := _memory_b(figures)) is None else quantity(memory_b, "B"),
            "—" if (share := figures.own_count_share) is None else f"{share:.3f} ×",
            number(figures.quality) + change,
            seconds(figures.time_to_quality_s),
        )

    def _main_curves(self, scale: Scale, across: HorizontalAxis) -> list[Curve]:
        curves = super()._main_curves(scale, across)
        if not self._has_one_size(scale):
            return curves
        compilation = self.rows(scale, lambda figures: figures.compilation_s)
        memory = self.rows(scale, _memory_b)
        bars, in_bytes = scale_charts.bars, partial(quantity, unit="B")
        return [
            *curves,
            Curve("compilation", "Compilation", bars(compilation, "seconds", _seconds)),
            Curve("memory", "Memory", bars(memory, "bytes", in_bytes)),
        ]

    @property
    def _quality_note(self) -> str:
        return (
            f"In brackets: quality minus that of {self._first}. Compilation: the time of the first"
            " step, or of all steps until everything is compiled. Memory: the peak on an"
            " accelerator, or of the processes of the run on a CPU. Own count: the operations of a"
            " step as the framework counts them, relative to ours. To target: the time until the"
            " last single model reached the target, including start-up."
        )

    def remarks(self, scale: Scale) -> list[tuple[str, str]]:
        """Return also the versions of the frameworks."""
        return [*super().remarks(scale), *dict.fromkeys(_versions(scale.points))]


def _versions(points: tuple[Point, ...]) -> Iterator[tuple[str, str]]:
    for point in points:
        if isinstance(point.figures, EnsembleFigures) and point.figures.framework_version:
            yield point.variant or "", f"version {point.figures.framework_version}"


def _memory_b(figures: EnsembleFigures) -> float | None:
    usage = figures.usage
    if usage is None:
        return None
    return usage.run_memory_b if usage.memory_b is None else usage.memory_b


def _seconds(value: float | None) -> str:
    return "—" if value is None else seconds(value)
