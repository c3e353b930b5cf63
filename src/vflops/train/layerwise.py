"""What LARS and LAMB share: a step size of its own for every tensor, found on the device.

Nothing here waits for the device. Norms, ratios and the learning rate stay tensors; a step that
a GradScaler found to overflow is undone by ``torch.where``, not by a branch of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from vflops.train.eager import undecorated

Tensors = list[Tensor] | tuple[Tensor, ...]


class LayerwiseOptimizer(Optimizer):
    """An optimizer whose groups say with ``adapt`` whether steps follow the weights' norms.

    A group's parameters are on one device. State is made with the optimizer, not by its first
    step, so that ``torch.compile`` and a CUDA graph meet the same step every time.
    """

    state_names: ClassVar[tuple[str, ...]]
    """Of state tensors shaped like the parameter; ``step`` counts its updates."""
    _step_supports_amp_scaling = True  # GradScaler then leaves unscaling and skipping to us

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float | Tensor,
        defaults: Mapping[str, object],
    ) -> None:
        # capturable: load_state_dict then brings `step` to the parameter's device.
        super().__init__(params, {**defaults, "lr": lr, "adapt": True, "capturable": True})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Take over the parameters of ``param_group``, with state of zeros."""
        undecorated(Optimizer.add_param_group)(self, param_group)
        for parameter in self.param_groups[-1]["params"]:
            state = self.state[parameter]
            for name in self.state_names:
                state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient; gives the closure's loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self._step_group(group, parameters)
        return loss

    def _step_group(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        state = {
            name: [self.state[p][name] for p in parameters] for name in (*self.state_names, "step")
        }
        found_inf: Tensor | None = getattr(self, "found_inf", None)
        touched = [*parameters, *(tensor for tensors in state.values() for tensor in tensors)]
        before = [] if found_inf is None else [tensor.clone() for tensor in touched]
        torch._foreach_add_(state["step"], 1.0)
        self._update(group, parameters, self._gradients(parameters), state)
        if found_inf is not None:
            skip = found_inf.to(parameters[0].device).reshape(()) > 0
            for tensor, old in zip(touched, before, strict=True):
                tensor.copy_(torch.where(skip, old, tensor))

    def _gradients(self, parameters: Sequence[Tensor]) -> Tensors:
        """Gradients without the loss scale, in fp32 at least: halves of them would underflow."""
        gradients: Tensors = [_at_least_fp32(p.grad) for p in parameters if p.grad is not None]
        scale: Tensor | None = getattr(self, "grad_scale", None)
        if scale is None:
            return gradients
        return torch._foreach_mul(gradients, scale.to(gradients[0].device).reciprocal())

    def _update(
        self,
        group: dict[str, Any],
        parameters: list[Tensor],
        gradients: Tensors,
        state: dict[str, list[Tensor]],
    ) -> None:
        """Change ``parameters`` and ``state`` in place, ``gradients`` not."""
        raise NotImplementedError


def wide_dtype(tensors: Tensors) -> torch.dtype:
    """The type for numbers that belong to a whole tensor: fp64 among fp64, else fp32."""
    return torch.float64 if any(t.dtype is torch.float64 for t in tensors) else torch.float32


def norms(tensors: Tensors, parameters: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of each tensor, as one vector; in fp32 where they are halves.

    A parameter that is divided between ranks says so by ``divided_over``, their group: then the
    norm of what belongs to it, its gradient say, is that of all parts.
    """
    found = list(torch._foreach_norm(tensors, 2, wide_dtype(tensors)))
    divided: dict[Any, list[int]] = {}
    for place, parameter in enumerate(parameters):
        if (group := getattr(parameter, "divided_over", None)) is not None:
            divided.setdefault(group, []).append(place)
    for group, places in divided.items():
        squares = torch.stack([found[place] for place in places]).square()
        dist.all_reduce(squares, group=group)
        for place, norm in zip(places, squares.sqrt().unbind(), strict=True):
            found[place] = norm
    return torch.stack(found)


def safe_ratios(numerators: Tensor, denominators: Tensor) -> Tensor:
    """``numerators / denominators``, 1 where either is zero."""
    usable = (numerators > 0) & (denominators > 0)
    return torch.where(usable, numerators / denominators, 1.0)


def scaled(tensors: Tensors, factors: Tensor | float) -> Tensors:
    """``tensors`` times a number for all of them, or times a vector's element each."""
    if isinstance(factors, Tensor) and factors.dim() == 1:
        return torch._foreach_mul(tensors, factors.unbind())
    return torch._foreach_mul(tensors, factors)


def _at_least_fp32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
