"""The operation graph of a model, by name; torch is imported only when needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vflops.errors import UsageError
from vflops.models.model_registry import model as find_model

if TYPE_CHECKING:
    from vflops.counting.capture import InputSpec
    from vflops.record.formats.graph import Graph


def parse_input(text: str) -> tuple[tuple[int, ...], str]:
    """Parse ``3x224x224`` or ``128:int64`` into a shape and a type."""
    match = re.fullmatch(r"(\d{1,12}(?:x\d{1,12})*)(?::(\w+))?", text.strip().lower())
    shape = tuple(int(size) for size in match[1].split("x")) if match else ()
    if match is None or 0 in shape:
        raise UsageError(
            f"input shape {text!r} is not valid",
            hint="write the shape of one sample, without the batch: 3x224x224, or 128:int64",
        )
    return shape, match[2] or "float32"


def graph_of(
    name: str, *, inputs: Sequence[tuple[tuple[int, ...], str]] = (), batch: int = 1
) -> Graph:
    """Return the graph of a model, for its default input unless ``inputs`` are given."""
    spec = find_model(name)
    if not inputs and spec.input_shape is None:
        raise UsageError(
            f"model {name} needs the shape of its input",
            hint="give one sample's shape, for example --input 3x224x224",
        )
    from vflops.counting.capture import InputSpec, capture

    specs: list[InputSpec] = [InputSpec(shape, dtype) for shape, dtype in inputs]
    if not specs and spec.input_shape is not None:
        specs = [InputSpec(spec.input_shape)]
    return capture(spec.load(), specs, name=spec.name, batch=batch, loss=spec.load_loss())
