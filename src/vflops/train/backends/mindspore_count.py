"""The operations of a step as MindSpore counts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def counted_flops(
    ms: Any, loss: Callable[..., Any], weights: Any, images: Any, labels: Any
) -> float:
    """Return the operations of a loss and its gradient, by ``mindspore.flops_collection``.

    It counts convolutions and matrix products in both passes, and nothing else. It knows the graphs
    of cells only, so the gradient is compiled once more as one, and not run.
    """
    with_gradient = ms.value_and_grad(loss, None, weights)

    class Counted(ms.nn.Cell):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(auto_prefix=False)  # which would rename the parameters

        def construct(self, images: Any, labels: Any) -> Any:
            return with_gradient(images, labels)

    cell = Counted().set_train()
    cell.compile(images, labels)
    model_flops, *_ = ms.flops_collection(cell.current_phase)
    return float(model_flops)
