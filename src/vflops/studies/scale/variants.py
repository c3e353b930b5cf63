"""The same training done in several ways: V3.0's figure 8, and V2.0's figure 1.

*optimisations*: as it was, in mixed precision, and with compressed communication as well.
*precisions*: the quality that each precision reaches when the ranks of a model become more.
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
"""That are compared unless others are named."""


def optimisations(precision: str) -> tuple[Variant, ...]:
    """The three of figure 8; mixed as ``precision`` is, where that is a mixed one."""
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
    """A variant a precision; fp32, where it is among them, is what others are compared with."""
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
    """Variants as ``NAME=key=value,key=value``; without settings it is the run as it is."""
    found = tuple(_parsed(text) for text in texts)
    _refuse_twice("--variant", [each.name for each in found], "give each its own name")
    return found


def _refuse_twice(option: str, names: Sequence[str], hint: str) -> None:
    (most, times), *_ = Counter(names).most_common()
    if times > 1:
        raise UsageError(f"{option} {most} is given {times} times", hint=hint)


def _parsed(text: str) -> Variant:
    name, _, rest = text.partition("=")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--variant {text!r}: {name!r} is no name of a folder",
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
                hint="take --ranks, and --scales for models",
            )
        settings[key] = value
    return Variant(name=name, settings=settings)


@dataclass(frozen=True)
class Variants(Ensembles):
    """Every variant at every size, each compared with the first at the same size."""

    variants: tuple[Variant, ...] = field(kw_only=True)
    heading: str = "Figures"
    named_columns: int = 1

    def words(self, size: Size) -> str:
        """``mixed, 1 model × 2 ranks``."""
        return f"{size.variant}, {super().words(size)}"

    def own(self, size: Size) -> dict[str, str]:
        """How ranks share a model, and then what makes it this variant."""
        (variant,) = (each for each in self.variants if each.name == size.variant)
        return {**super().own(size), **variant.settings}

    def refusal(self, settings: Callable[[], Settings], workload: str) -> str | None:
        """Settings that do not go together at this size; a precision that this machine lacks."""
        try:
            found = settings()
        except UsageError as error:
            if _contradicts(error):
                return error.message
            raise  # there is no such setting, or no such value
        if not backend(found.launch.on).is_this_machine:  # a scheduler's nodes are not visible here
            return None
        from vflops.machine.devices import pick
        from vflops.train.precision import Precision

        train = found.workloads[workload]["train"]
        place = pick(train["device"], "train.device").torch_device
        try:
            Precision.named(train["precision"], place)
        except UsageError as error:
            return error.message
        return None

    @property
    def title(self) -> str:
        """Which of the two it is."""
        return "Quality against scale" if self._by_scale else "Optimisations"

    @property
    def _by_scale(self) -> bool:
        return self.kind == "precisions"

    @property
    def _first(self) -> str:
        return self.variants[0].name

    def table(self, scale: Scale) -> list[Sequence[str]]:
        """Speed and quality of every variant, at each size beside the first one's."""
        named = scale.quality_name or "quality"
        if self._by_scale:
            names = ("P", named, f"against {self._first}", "factor", "FLOPS", "VFLOPS", "speed-up")
            cells = self._quality_cells
        else:
            names = ("M × P", "FLOPS", "VFLOPS", "speed-up", named, "to target", "sent")
            cells = self._speed_cells
        found: list[Sequence[str]] = [("precision" if self._by_scale else "variant", *names)]
        for point in scale.points:
            own = point.figures
            start = (point.variant or "", self._at(point))
            if isinstance(own, EnsembleFigures):
                *most, last = cells(own)
                found.append((*start, *most, last + marks(own)))
            else:
                blank = ("—",) * (len(names) - 2)
                found.append((*start, *blank, "refused" if point.refused else "not complete"))
        return found

    def _quality_cells(self, own: EnsembleFigures) -> tuple[str, ...]:
        return (
            number(own.quality),
            _signed(own.quality_change),
            _number(own.penalty),
            quantity(own.flops, "FLOPS"),
            quantity(own.vflops, "VFLOPS"),
            _times(own.speedup),
        )

    def _speed_cells(self, own: EnsembleFigures) -> tuple[str, ...]:
        change = f" ({_signed(own.quality_change)})" if own.quality_change else ""
        return (
            quantity(own.flops, "FLOPS"),
            quantity(own.vflops, "VFLOPS"),
            _times(own.speedup),
            number(own.quality) + change,
            seconds(own.time_to_quality_s),
            quantity(own.exchanged_bytes, "B"),
        )

    def curves(self, scale: Scale) -> list[Curve]:
        """Of precisions a curve each over ranks; of optimisations bars below each other."""
        if not any(point.figures for point in scale.points):
            return []
        named = scale.quality_name or "quality"
        target = None if scale.target is None else ("target", scale.target)
        speed = self._rows(scale, lambda own: own.flops)
        valid = self._rows(scale, lambda own: own.vflops)
        good = self._rows(scale, lambda own: own.quality)
        title = f"Quality: {named}"
        if self._by_scale:
            across = Across("ranks of the model: P")
            factor = self._rows(scale, lambda own: own.penalty)
            level = ("at the target:", 1.0)
            drawn = scale_charts.lines(factor, across, "(quality / target)ⁿ", target=level)
            return [
                Curve("quality", title, scale_charts.lines(good, across, named, target=target)),
                Curve("factor", "Quality factor", drawn),
                Curve("flops", "FLOPS", scale_charts.lines(speed, across, "FLOPS", rate=True)),
                Curve("vflops", "VFLOPS", scale_charts.lines(valid, across, "VFLOPS", rate=True)),
            ]
        time = self._rows(scale, lambda own: own.time_to_quality_s)
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
        """What the columns of the table are."""
        speed = (
            "FLOPS: operations of all models over the time from the first step of the first to the"
            " end of the last one’s training; VFLOPS: FLOPS × factor, with the factor (quality /"
            " target)ⁿ, so that what a variant loses of quality it loses of its score. Speed-up:"
            f" FLOPS over those of {self._first} at the same size."
        )
        if self._by_scale:
            return (
                f"{speed} Against {self._first}: quality less that of {self._first} at the same P."
            )
        return (
            f"{speed} In brackets: quality less that of {self._first}. To target: time until the"
            " last model, by itself, was there, start-up included. Sent: bytes a step, of all"
            " ranks of a model to each other, for its gradients."
        )

    def remarks(self, scale: Scale) -> list[tuple[str, str]]:
        """The variants that cannot be had here, and those that the device only imitates."""
        told = [(p.variant or "", f"refused: {p.refused}") for p in scale.points if p.refused]
        told += [
            (point.variant or "", own.emulated)
            for point, own in scale.found(EnsembleFigures)
            if own.emulated
        ]
        return [*super().remarks(scale), *dict.fromkeys(told)]

    def _at(self, point: Point) -> str:
        return str(point.ranks) if self._by_scale else f"{point.jobs} × {point.ranks}"

    def _series(self, point: Point) -> list[str]:
        return [point.variant or ""]


def _contradicts(error: UsageError) -> bool:
    """Whether the settings are all there and do not go together."""
    cause = error.__cause__
    return isinstance(cause, ValidationError) and cause.errors()[0]["type"] == "value_error"


def _signed(change: float | None) -> str:
    """``−0.003``."""
    if change is None:
        return "—"
    return f"{change:+.2g}".replace("-", "−") if change else "0"


def _number(value: float | None) -> str:
    return "—" if value is None else number(value)


def _reached(time_s: float | None) -> str:
    return NOT_REACHED if time_s is None else seconds(time_s)


def _times(speedup: float | None) -> str:
    return "—" if speedup is None else f"{speedup:.2f} ×"
