"""The variants that an experiment compares: those of the papers, or the user's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import get_args

from vflops.config.training import TrainingPrecision
from vflops.errors import UsageError, unknown_name
from vflops.studies.scale.scale_result import Variant

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")
_NEXT_SETTING = re.compile(r",(?=[\w.-]+=)")
_SIZE_SETTINGS = ("ranks", "models")
"""Settings that the size of a point determines, so that a variant cannot change them."""
_MIXED, _COMPRESSED = "mixed-bf16", "fp16"


def optimisations(precision: str) -> tuple[Variant, ...]:
    """Return the variants of the papers; ``precision`` is used if it is a mixed one."""
    prefix = "train.communication."
    plain = {f"{prefix}mode": "all-reduce", f"{prefix}precision": "fp32"}
    mixed = {"train.precision": _mixed(precision)}
    compressed = {f"{prefix}mode": "all-reduce", f"{prefix}precision": _COMPRESSED}
    return (
        Variant(name="original", settings={"train.precision": "fp32", **plain}),
        Variant(name="mixed", settings={**mixed, **plain}),
        Variant(name="compression", settings={"train.precision": "fp32", **compressed}),
        Variant(name="mixed+compression", settings={**mixed, **compressed}),
    )


def default_precisions(precision: str) -> tuple[Variant, ...]:
    """Return fp32 and a mixed precision: ``precision`` if it is a mixed one."""
    return precisions(("fp32", _mixed(precision)))


def _mixed(precision: str) -> str:
    return precision if precision.startswith("mixed-") else _MIXED


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
