"""The operation graph of a model, by name; torch is imported only when needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vflops.counting.input_specs import Input
from vflops.errors import UsageError
from vflops.models.model_registry import BUILT_IN
from vflops.models.model_registry import model as find_model

if TYPE_CHECKING:
    from vflops.record.formats.graph import Graph


def graph_of(name: str, *, inputs: Sequence[Input] = (), batch: int = 1) -> Graph:
    """Return the graph of a model, for its default input unless ``inputs`` are given."""
    spec = find_model(name)
    if not inputs and spec.input_shape is None:
        raise UsageError(
            f"model {name} needs the shape of its input",
            hint="give one sample's shape, for example --input 3x224x224",
        )
    from vflops.counting.capture import capture

    return capture(
        spec.load(),
        spec.inputs(inputs),
        name=spec.name,
        batch=batch,
        loss=spec.load_loss(),
        # Tests prove that the backward pass of built-in models follows from the forward pass.
        run_backward=spec not in BUILT_IN,
    )
