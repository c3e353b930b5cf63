"""Experiments with variants of a training run, as in HPC AI500.

*optimisations* (figure 8 of V3.0) compares the original, mixed precision, and mixed precision with
compressed communication. *precisions* (figure 1 of V2.0) shows the quality that each precision
reaches with more and more ranks per model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import get_args

from pydantic import ValidationError

from vflops.config.settings import Settings
from vflops.config.training import TrainingPrecision
from vflops.errors import UsageError, unknown_name
from vflops.launch.factory import backend
from vflops.results.score.figure_text import NOT_REACHED, number
from vflops.studies.scale import scale_charts
from vflops.studies.scale.axis import marks
from vflops.studies.scale.ensembles import Ensembles
from vflops.studies.scale.scale_charts import Curve, HorizontalAxis
from vflops.studies.scale.scale_result import EnsembleFigures, Point, Scale, Size, Variant
from vflops.units import quantity, seconds

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")
_NEXT_SETTING = re.compile(r",(?=[\w.-]+=)")
_SIZE_SETTINGS = ("ranks", "models")
"""Settings that the size of a point determines, so that a variant cannot change them."""
_MIXED, _COMPRESSED = "mixed-bf16", "fp16"
PRECISIONS = ("fp32", _MIXED)
"""The precisions that are compared by default."""


def optimisations(precision: str) -> tuple[Variant, ...]:
    """Return the three variants of figure 8; ``precision`` is used if it is a mixed one."""
    prefix = "train.communication."
    plain = {f"{prefix}mode": "all-reduce", f"{prefix}precision": "fp32"}
    mixed = {"train.precision": precision if precision.startswith("mixed-") else _MIXED}
    compressed = {f"{prefix}mode": "all-reduce", f"{prefix}precision": _COMPRESSED}
    return (
        Variant(name="original", settings={"train.precision": "fp32", **plain}),
        Variant(name="mixed", settings={**mixed, **plain}),
        Variant(name="mixed+compression", settings={**mixed, **compressed}),
    )


def precisions(names: Sequence[str]) -> tuple[Variant, ...]:
    """Return one variant per precision; fp32 comes first, as the base of the comparison."""
    known: tuple[str, ...] = get_args(TrainingPrecision)
    if not all(names):
        fault = "has an empty name" if len(names) > 1 else "is empty"
        raise UsageError(f"--precisions {','.join(names)!r} {fault}", hint="e.g. fp32,mixed-bf16")
    for name in names:
        if name not in known:
            raise unknown_name("training precision", name, known, where=" in --precisions")
    _check_unique("--precisions", names, "name each once")
    ordered = sorted(names, key=lambda name: name != "fp32")
    return tuple(Variant(name=name, settings={"train.precision": name}) for name in ordered)


def parse_variants(texts: Sequence[str]) -> tuple[Variant, ...]:
    """Parse variants like ``NAME=key=value,key=value``; a name alone changes no setting."""
    variants = tuple(_parse_variant(text) for text in texts)
    _check_unique("--variant", [variant.name for variant in variants], "give each a different name")
    return variants


def _check_unique(option: str, names: Sequence[str], hint: str) -> None:
    (most, times), *_ = Counter(names).most_common()
    if times > 1:
        raise UsageError(f"{option} {most} is given {times} times", hint=hint)


def _parse_variant(text: str) -> Variant:
    name, _, rest = text.partition("=")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--variant {text!r}: {name!r} is not a valid folder name",
            hint="e.g. --variant int8=communication.precision=int8",
        )
    settings = {}
    for assignment in _NEXT_SETTING.split(rest) if rest else ():
        key, equals, value = assignment.partition("=")
        if not (key and equals):
            raise UsageError(
                f"--variant {text!r}: {assignment!r} has no '='",
                hint="write NAME=key=value,key=value",
            )
        if key.rpartition(".")[2] in _SIZE_SETTINGS:
            raise UsageError(
                f"--variant {text!r}: {key} is the same for all variants",
                hint="use --ranks, and --scales for models",
            )
        settings[key] = value
    return Variant(name=name, settings=settings)


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

    @property
    def title(self) -> str:
        """The title of the kind of experiment."""
        return "Quality against scale" if self._by_scale else "Optimisations"

    @property
    def _by_scale(self) -> bool:
        return self.kind == "precisions"

    @property
    def _first(self) -> str:
        return self.variants[0].name

    def table(self, scale: Scale) -> list[Sequence[str]]:
        """Return speed and quality of every variant at every size."""
        quality = scale.quality_name or "quality"
        if self._by_scale:
            against = f"against {self._first}"
            names = ("P", quality, against, "factor", "FLOPS", scale.vflops_name, "speed-up")
            cells = self._quality_cells
        else:
            names = ("M × P", "FLOPS", scale.vflops_name, "speed-up", quality, "to target", "sent")
            cells = self._speed_cells
        rows: list[Sequence[str]] = [("precision" if self._by_scale else "variant", *names)]
        for point in scale.points:
            figures = point.figures
            start = (point.variant or "", self._at(point))
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
            quantity(figures.vflops, "VFLOPS"),
            _times(figures.speedup),
            number(figures.quality) + change,
            seconds(figures.time_to_quality_s),
            quantity(figures.exchanged_bytes, "B"),
        )

    def curves(self, scale: Scale) -> list[Curve]:
        """Return charts with one line per precision over ranks, or with one bar per variant."""
        if not any(point.figures for point in scale.points):
            return []
        named = scale.quality_name or "quality"
        target = None if scale.target is None else ("target", scale.target)
        speed = self._rows(scale, lambda f: f.flops)
        valid = self._rows(scale, lambda f: f.vflops)
        good = self._rows(scale, lambda f: f.quality)
        title = f"Quality: {named}"
        if self._by_scale:
            across = HorizontalAxis("ranks of the model: P")
            factor = self._rows(scale, lambda f: f.penalty)
            level = ("at the target:", 1.0)
            drawn = scale_charts.lines(factor, across, "(quality / target)ⁿ", target=level)
            return [
                Curve("quality", title, scale_charts.lines(good, across, named, target=target)),
                Curve("factor", "Quality factor", drawn),
                Curve("flops", "FLOPS", scale_charts.lines(speed, across, "FLOPS", rate=True)),
                Curve(
                    "vflops",
                    scale.vflops_name,
                    scale_charts.lines(valid, across, "VFLOPS", rate=True),
                ),
            ]
        time = self._rows(scale, lambda f: f.time_to_quality_s)
        return [
            Curve(
                "flops", "FLOPS", scale_charts.bars(speed, "FLOPS", partial(quantity, unit="FLOPS"))
            ),
            Curve(
                "vflops",
                scale.vflops_name,
                scale_charts.bars(valid, "VFLOPS", partial(quantity, unit="VFLOPS")),
            ),
            Curve("time", "Time to the target", scale_charts.bars(time, "seconds", _reached)),
            Curve("quality", title, scale_charts.bars(good, named, _number, target=target)),
        ]

    def note(self, scale: Scale) -> str:
        """Return an explanation of the columns of the table."""
        speed = (
            "FLOPS: operations of all models, divided by the time from the first step of the first"
            " model to the end of the last model’s training. VFLOPS: FLOPS × quality factor,"
            " (quality / target)ⁿ, so that a loss of quality lowers the score. Speed-up: FLOPS"
            f" relative to {self._first} at the same size.{scale.open_note}"
        )
        if self._by_scale:
            return (
                f"{speed} Against {self._first}: quality minus that of {self._first} at the same P."
            )
        return (
            f"{speed} In brackets: quality minus that of {self._first}. To target: the time until"
            " the last single model reached the target, including start-up. Sent: gradient bytes"
            " per step between all ranks of a model."
        )

    def remarks(self, scale: Scale) -> list[tuple[str, str]]:
        """Return the variants that cannot be run here, and those whose precision is emulated."""
        remarks = [(p.variant or "", f"refused: {p.refused}") for p in scale.points if p.refused]
        remarks += [
            (point.variant or "", figures.emulated)
            for point, figures in scale.completed(EnsembleFigures)
            if figures.emulated
        ]
        return [*super().remarks(scale), *dict.fromkeys(remarks)]

    def _at(self, point: Point) -> str:
        return str(point.ranks) if self._by_scale else f"{point.jobs} × {point.ranks}"

    def _series(self, point: Point) -> list[str]:
        return [point.variant or ""]


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
