"""The counts of a model by vflops and by torch's FlopCounterMode, which runs it for real.

The oracle runs forward and backward on the CPU. Fused attention and oneDNN are switched off: their
kernels do the same products inside one operator, for which FlopCounterMode has no formula.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, ValuesView
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from tests.support.counted_models.definition import CountedModel
from vflops.counting.aten import base_name
from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.counting.example_inputs import graph_on_inputs
from vflops.errors import UsageError

Pair = tuple[int, int]
"""Operations forward and backward."""


@dataclass(frozen=True)
class Counted:
    """What vflops says about a model."""

    executed: Pair | None = None
    executed_torch: Pair | None = None
    uncounted: frozenset[str] = frozenset()
    """Operators that are listed as not counted and whose kind the graph does not know."""
    error: UsageError | None = None
    """Why the model is refused."""


def counted(model: CountedModel, *, as_instance: bool = False) -> Counted:
    """Return the counts of ``model`` by vflops, or the error.

    The model is given as a function that builds it, or as an instance.
    """
    try:
        graph = graph_on_inputs(model.build() if as_instance else model.build, _inputs(model))
    except UsageError as error:
        return Counted(error=error)
    executed, like_torch = (
        count(graph, convention(name)) for name in ("executed", "executed-torch")
    )
    return Counted(
        executed=(executed.total.forward, executed.total.backward),
        # FlopCounterMode cannot tell recomputation from the rest of the backward pass.
        executed_torch=(
            like_torch.total.forward,
            like_torch.total.backward + like_torch.total.recompute,
        ),
        uncounted=frozenset(
            base_name(operator.op) for operator in executed.uncounted if operator.kind == "other"
        ),
    )


def flop_counter_mode(model: CountedModel) -> Pair:
    """Return the counts of ``model`` by FlopCounterMode; every output gets a gradient."""
    module = model.build().train()
    inputs = _inputs(model)
    with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False):
        with FlopCounterMode(display=False) as forward:
            result = module(**inputs) if isinstance(inputs, Mapping) else module(*inputs)
        outputs = [tensor for tensor in tensors_in(result) if tensor.requires_grad]
        with FlopCounterMode(display=False) as backward:
            if outputs:
                torch.autograd.backward([_magnitude(tensor).sum() for tensor in outputs])
    return forward.get_total_flops(), backward.get_total_flops()


def tensors_in(result: Any) -> Iterator[Tensor]:
    """Return the tensors of a result, also those in objects that torch does not know."""
    for leaf in tree_leaves(result):
        if isinstance(leaf, Tensor):
            yield leaf
        elif isinstance(leaf, torch.distributions.Distribution):
            yield from (getattr(leaf, name) for name in leaf.arg_constraints if name in vars(leaf))
        elif isinstance(leaf, Mapping):
            yield from tensors_in(list(leaf.values()))
        elif isinstance(leaf, Iterator | ValuesView):
            yield from tensors_in(list(leaf))
        elif hasattr(leaf, "__dict__"):
            yield from tensors_in(list(vars(leaf).values()))


def _inputs(model: CountedModel) -> Any:
    torch.manual_seed(0)  # values decide nothing but must be valid for the CPU
    return model.inputs()


def _magnitude(tensor: Tensor) -> Tensor:
    return tensor.abs() if tensor.is_complex() else tensor
