"""Experiments with variants of a training: V3.0's figure 8, and V2.0's figure 1.

*optimisations*: the original, mixed precision, and mixed precision with compressed communication.
*precisions*: the quality that each precision reaches with more and more ranks per model.
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
from vflops.studies.scale.scale_charts import Across, Curve
from vflops.studies.scale.scale_result import EnsembleFigures, Point, Scale, Size, Variant
from vflops.units import quantity, seconds

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")
_NEXT_SETTING = re.compile(r",(?=[\w.-]+=)")
_OF_THE_SIZE = ("ranks", "models")
_MIXED, _COMPRESSED = "mixed-bf16", "fp16"
PRECISIONS = ("fp32", _MIXED)
"""The precisions that are compared by default."""


def optimisations(precision: str) -> tuple[Variant, ...]:
    """Return the three variants of figure 8, with ``precision`` if it is a mixed one."""
    exchange = "train.communication."
    plain = {f"{exchange}mode": "all-reduce", f"{exchange}precision": "fp32"}
    mixed = {"train.precision": precision if precision.startswith("mixed-") else _MIXED}
    packed = {f"{exchange}mode": "all-reduce", f"{exchange}precision": _COMPRESSED}
    return (
        Variant(name="original", settings={"train.precision": "fp32", **plain}),
        Variant(name="mixed", settings={**mixed, **plain}),
        Variant(name="mixed+compression", settings={**mixed, **packed}),
    )


def precisions(names: Sequence[str]) -> tuple[Variant, ...]:
    """Return one variant per precision; fp32 comes first, as the base of the comparison."""
    known: tuple[str, ...] = get_args(TrainingPrecision)
    if not all(names):
        several = "has an empty name" if len(names) > 1 else "is empty"
        raise UsageError(f"--precisions {','.join(names)!r} {several}", hint="e.g. fp32,mixed-bf16")
    for name in names:
        if name not in known:
            raise unknown_name("training precision", name, known, where=" in --precisions")
    _refuse_twice("--precisions", names, "name each once")
    ordered = sorted(names, key=lambda name: name != "fp32")
    return tuple(Variant(name=name, settings={"train.precision": name}) for name in ordered)


def parsed(texts: Sequence[str]) -> tuple[Variant, ...]:
    """Return variants from ``NAME=key=value,key=value``; without settings, nothing is changed."""
    variants = tuple(_parsed(text) for text in texts)
    _refuse_twice("--variant", [variant.name for variant in variants], "give each a different name")
    return variants


def _refuse_twice(option: str, names: Sequence[str], hint: str) -> None:
    (most, times), *_ = Counter(names).most_common()
    if times > 1:
        raise UsageError(f"{option} {most} is given {times} times", hint=hint)


def _parsed(text: str) -> Variant:
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
        if key.rpartition(".")[2] in _OF_THE_SIZE:
            raise UsageError(
                f"--variant {text!r}: {key} is the same for all variants",
                hint="use --ranks, and --scales for models",
            )
        settings[key] = value
    return Variant(name=name, settings=settings)


@dataclass(frozen=True)
class Variants(Ensembles):
    """Every variant at every size, compared with the first variant at the same size."""

    variants: tuple[Variant, ...] = field(kw_only=True)
    heading: str = "Figures"
    named_columns: int = 1

    def words(self, size: Size) -> str:
        """Return ``mixed, 1 model × 2 ranks``."""
        return f"{size.variant}, {super().words(size)}"

    def own(self, size: Size) -> dict[str, str]:
        """Return how ranks share a model, changed by the settings of the variant."""
        (variant,) = (v for v in self.variants if v.name == size.variant)
        return {**super().own(size), **variant.settings}

    def refusal(self, settings: Callable[[], Settings], workload: str) -> str | None:
        """Return why settings contradict at this size, or that the machine lacks the precision."""
        try:
            loaded = settings()
        except UsageError as error:
            if _contradicts(error):
                return error.message
            raise  # an unknown setting or value
        if not backend(loaded.launch.on).is_this_machine:  # its nodes are not visible
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
        named = scale.quality_name or "quality"
        if self._by_scale:
            names = ("P", named, f"against {self._first}", "factor", "FLOPS", "VFLOPS", "speed-up")
            cells = self._quality_cells
        else:
            names = ("M × P", "FLOPS", "VFLOPS", "speed-up", named, "to target", "sent")
            cells = self._speed_cells
        rows: list[Sequence[str]] = [("precision" if self._by_scale else "variant", *names)]
        for point in scale.points:
            figures = point.figures
            start = (point.variant or "", self._at(point))
            if isinstance(figures, EnsembleFigures):
                *most, last = cells(figures)
                rows.append((*start, *most, last + marks(figures)))
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
        """Return one curve per precision over ranks, or one bar per optimisation."""
        if not any(point.figures for point in scale.points):
            return []
        named = scale.quality_name or "quality"
        target = None if scale.target is None else ("target", scale.target)
        speed = self._rows(scale, lambda f: f.flops)
        valid = self._rows(scale, lambda f: f.vflops)
        good = self._rows(scale, lambda f: f.quality)
        title = f"Quality: {named}"
        if self._by_scale:
            across = Across("ranks of the model: P")
            factor = self._rows(scale, lambda f: f.penalty)
            level = ("at the target:", 1.0)
            drawn = scale_charts.lines(factor, across, "(quality / target)ⁿ", target=level)
            return [
                Curve("quality", title, scale_charts.lines(good, across, named, target=target)),
                Curve("factor", "Quality factor", drawn),
                Curve("flops", "FLOPS", scale_charts.lines(speed, across, "FLOPS", rate=True)),
                Curve("vflops", "VFLOPS", scale_charts.lines(valid, across, "VFLOPS", rate=True)),
            ]
        time = self._rows(scale, lambda f: f.time_to_quality_s)
        return [
            Curve(
                "flops", "FLOPS", scale_charts.bars(speed, "FLOPS", partial(quantity, unit="FLOPS"))
            ),
            Curve(
                "vflops",
                "VFLOPS",
                scale_charts.bars(valid, "VFLOPS", partial(quantity, unit="VFLOPS")),
            ),
            Curve("time", "Time to the target", scale_charts.bars(time, "seconds", _reached)),
            Curve("quality", title, scale_charts.bars(good, named, _number, target=target)),
        ]

    def note(self, scale: Scale) -> str:
        """Return an explanation of the columns of the table."""
        speed = (
            "FLOPS: operations of all models over the time from the first step of the first to the"
            " end of the last one’s training; VFLOPS: FLOPS × quality factor, (quality / target)ⁿ,"
            " so that a loss of quality lowers the score. Speed-up: FLOPS relative to"
            f" {self._first} at the same size."
        )
        if self._by_scale:
            return (
                f"{speed} Against {self._first}: quality minus that of {self._first} at the same P."
            )
        return (
            f"{speed} In brackets: quality minus that of {self._first}. To target: time until the"
            " last single model reached it, including start-up. Sent: gradient bytes per step"
            " between all ranks of a model."
        )

    def remarks(self, scale: Scale) -> list[tuple[str, str]]:
        """Return the variants that cannot be run here, and those that the device emulates."""
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
    """Whether known settings contradict each other."""
    cause = error.__cause__
    return isinstance(cause, ValidationError) and cause.errors()[0]["type"] == "value_error"


def _signed(change: float | None) -> str:
    """Return ``−0.003``."""
    if change is None:
        return "—"
    return f"{change:+.2g}".replace("-", "−") if change else "0"


def _number(value: float | None) -> str:
    return "—" if value is None else number(value)


def _reached(time_s: float | None) -> str:
    return NOT_REACHED if time_s is None else seconds(time_s)


def _times(speedup: float | None) -> str:
    return "—" if speedup is None else f"{speedup:.2f} ×"
