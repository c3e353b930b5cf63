"""The public interface of ``vflops`` as text: every name, signature, attribute and column.

``python -m tests.support.public_interface`` writes it to the file that a test compares it with.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from pathlib import Path

import vflops
from vflops.api import comparing, model_count, run

STORED = Path(__file__).parents[1] / "api" / "public_interface.txt"

CONSTRUCTED = ("Run", "VflopsError")
"""The classes that users may call; functions return the instances of the others."""


def described() -> str:
    """Return one line per public name, member and column."""
    lines = [line for name in sorted(vflops.__all__) for line in _lines(name)]
    for module in (comparing, model_count, run):
        lines += [line for table in vars(module).values() for line in _columns(table)]
    return "\n".join(lines) + "\n"


def _lines(name: str) -> Iterator[str]:
    value = getattr(vflops, name)
    if not inspect.isclass(value):
        yield f"{name}{inspect.signature(value)}" if callable(value) else name
        return
    yield f"class {name}{inspect.signature(value) if name in CONSTRUCTED else ''}"
    for member, object in sorted(vars(value).items()):
        if member.startswith("_"):
            continue
        if isinstance(object, property):
            returns = inspect.signature(typing.cast(typing.Any, object.fget)).return_annotation
            yield f"  {name}.{member}: {returns}"
        elif callable(object):
            yield f"  {name}.{member}{inspect.signature(object)}"


def _columns(table: object) -> Iterator[str]:
    if typing.is_typeddict(table) and inspect.isclass(table):
        for column, kind in inspect.get_annotations(table).items():
            text = kind.__forward_arg__ if isinstance(kind, typing.ForwardRef) else kind
            yield f"{table.__name__}[{column!r}]: {text}"


if __name__ == "__main__":
    STORED.write_text(described(), encoding="utf-8")
