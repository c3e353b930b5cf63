"""``vflops.count``: the operations of a torch model on example inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from vflops.counting.conventions import convention
from vflops.counting.count import Count as GraphCount
from vflops.counting.count import Row
from vflops.counting.count import count as count_graph
from vflops.units import integer

if TYPE_CHECKING:
    from torch import Tensor, nn


class OperationRow(TypedDict):
    """The operations of one kind of operator or of one layer."""

    name: str
    operators: int
    """The number of operators."""
    forward: int | None
    """None if the rules cover none of the operators."""
    backward: int | None
    update: int | None
    total: int | None
    recompute: int | None
    """Forward operations that activation checkpointing repeats; not part of the total."""


class UncountedRow(TypedDict):
    """An operator that does arithmetic for which the rules have no count."""

    op: str
    """Its name in torch, such as ``aten.cumsum.default``."""
    kind: str
    operators: int
    """How often the model applies it."""
    share: float
    """Its share of the elements that all operators read and write."""


class Count:
    """The operations of one training step on one batch, as exact integers."""

    def __init__(self, counted: GraphCount) -> None:
        self._counted = counted
        self._total = counted.total

    @property
    def model(self) -> str:
        """The name of the model's class or function."""
        return self._counted.graph.model

    @property
    def rules(self) -> str:
        """The counting convention and its version, such as ``executed/1``."""
        return f"{self._counted.convention.id}/{self._counted.convention.version}"

    @property
    def batch(self) -> int:
        """The number of samples: the first dimension of the example inputs."""
        return self._counted.graph.batch

    @property
    def parameters(self) -> int:
        """The number of elements in all trainable parameters."""
        return self._counted.graph.parameter_count

    @property
    def forward(self) -> int:
        """Operations of the forward pass."""
        return self._total.forward

    @property
    def backward(self) -> int:
        """Operations of the backward pass."""
        return self._total.backward

    @property
    def update(self) -> int:
        """Operations of the parameter update, if the rules count it."""
        return self._total.update

    @property
    def total(self) -> int:
        """The sum of forward, backward and update: the model's operations."""
        return self._total.total

    @property
    def tokens(self) -> int | None:
        """The number of tokens in the batch; None if the model does not look up tokens."""
        return self._counted.tokens

    @property
    def per_token(self) -> int | float | None:
        """``total`` per token: an integer if the division is exact; None without tokens."""
        return self._counted.per_token

    @property
    def recompute(self) -> int:
        """Forward operations that activation checkpointing repeats in the backward pass.

        ``total`` does not contain them; ``total + recompute`` is what the hardware executes.
        """
        return self._total.recompute

    @property
    def notes(self) -> list[str]:
        """What to know of the backward pass, each a sentence; ``count`` warns of them too."""
        return list(self._counted.notes)

    def by_kind(self) -> list[OperationRow]:
        """Return one row per kind of operator, largest first."""
        return [_operation_row(row) for row in self._counted.by_kind]

    def by_layer(self) -> list[OperationRow]:
        """Return one row per module, in the order of execution."""
        return [_operation_row(row) for row in self._counted.by_layer]

    def uncounted(self) -> list[UncountedRow]:
        """Return the operators that the totals lack, because the rules do not cover them."""
        return [
            {"op": item.op, "kind": item.kind, "operators": item.nodes, "share": item.share}
            for item in self._counted.uncounted
        ]

    def __repr__(self) -> str:
        return (
            f"<vflops.Count: {self.model}, {integer(self.total)} operations of a batch of "
            f"{self.batch} by {self.rules}>"
        )


def count(
    model: nn.Module | Callable[[], nn.Module],
    inputs: Tensor | Sequence[Any] | Mapping[str, Any],
    *,
    rules: str = "executed",
    loss: Callable[[Any], Tensor] | None = None,
) -> Count:
    """Count the operations of one training step of ``model`` on ``inputs``.

    Forward and backward pass run once on torch's meta device, in training mode: nothing is
    computed, and neither the model nor the inputs are changed. ``Count.uncounted`` lists the
    operators that ``rules`` do not cover. There is a warning if one of them may be much of the
    work (a product, a convolution, or an operator that vflops does not know), and if there is no
    backward pass.

    :param model: a module, or a function without arguments that builds one, so that a large model
        needs no memory.
    :param inputs: the arguments of ``forward``: one tensor, several arguments in order, or by name.
        Arguments may be numbers, strings, None, and containers of tensors. Only shapes and types of
        tensors matter. The first dimension of each tensor is the batch.
    :param rules: the counting convention; ``vflops list`` shows all. Those for transformers,
        such as ``palm``, need a model with attention whose inputs are token ids.
    :param loss: a function from the model's output to the loss, whose operations are counted too.
    :raises VflopsError: if the model does not run on these inputs, or the rules are unknown or do
        not apply to it.
    """
    counting_convention = convention(rules)
    from vflops.counting.example_inputs import graph_on_inputs

    counted = count_graph(graph_on_inputs(model, inputs, loss), counting_convention)
    for note in counted.notes:
        warnings.warn(note, stacklevel=2)
    if counted.warning:
        warnings.warn(f"{counted.warning}; see Count.uncounted()", stacklevel=2)
    return Count(counted)


def _operation_row(row: Row) -> OperationRow:
    ops = row.ops if row.ruled else None
    return {
        "name": row.name,
        "operators": row.nodes,
        "forward": ops.forward if ops else None,
        "backward": ops.backward if ops else None,
        "update": ops.update if ops else None,
        "total": ops.total if ops else None,
        "recompute": ops.recompute if ops else None,
    }
