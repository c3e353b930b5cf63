"""The common part of LARS, LAMB and Muon: steps of whole tensors, computed on the device.

The host never waits for the device. Norms, ratios and the learning rate stay tensors; a step in
which a GradScaler found an overflow is undone by ``torch.where``, not by a branch on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from vflops.metrics.arguments import require_between, require_non_negative, require_positive
from vflops.train.eager import undecorated

Tensors = list[Tensor] | tuple[Tensor, ...]


class LayerwiseOptimizer(Optimizer):
    """An optimizer that scales the step of each tensor by the norm of its weights.

    This applies to parameter groups with ``adapt`` true. A group's parameters are on one device.
    The state is created with the optimizer, not in its first step, so that ``torch.compile`` and
    CUDA graphs see the same step every time.
    """

    state_names: ClassVar[tuple[str, ...]]
    """Names of the state tensors, which have the parameter's shape."""
    _step_supports_amp_scaling = True  # GradScaler then leaves unscaling and skipping to this class

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float | Tensor,
        defaults: Mapping[str, object],
    ) -> None:
        # capturable: load_state_dict then moves `step` to the parameter's device.
        super().__init__(params, {**defaults, "lr": lr, "adapt": True, "capturable": True})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add the parameters of ``param_group``, with zeros as their state."""
        undecorated(Optimizer.add_param_group)(self, param_group)
        group = self.param_groups[-1]
        for parameter in group["params"]:
            state = self.state[parameter]
            for name in self.state_names_of(group):
                state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)

    def state_names_of(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Return the names of the state tensors of a group; by default all groups have the same."""
        return self.state_names

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient; return the closure's loss."""
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
        names = (*self.state_names_of(group), "step")
        state = {name: [self.state[p][name] for p in parameters] for name in names}
        found_inf: Tensor | None = getattr(self, "found_inf", None)
        tensors = [*parameters, *(tensor for values in state.values() for tensor in values)]
        before = [] if found_inf is None else [tensor.clone() for tensor in tensors]
        torch._foreach_add_(state["step"], 1.0)
        self._update(group, parameters, self._gradients(parameters), state)
        if found_inf is not None:
            skip = found_inf.to(parameters[0].device).reshape(()) > 0
            for tensor, old in zip(tensors, before, strict=True):
                tensor.copy_(torch.where(skip, old, tensor))

    def _gradients(self, parameters: Sequence[Tensor]) -> Tensors:
        """Return the gradients without the loss scale, at least in fp32 to avoid underflow."""
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
        """Change ``parameters`` and ``state`` in place, but not ``gradients``."""
        raise NotImplementedError


def wide_dtype(tensors: Tensors) -> torch.dtype:
    """Return the type for per-tensor numbers: fp64 if any tensor is fp64, else fp32."""
    return torch.float64 if any(t.dtype is torch.float64 for t in tensors) else torch.float32


def norms(tensors: Tensors, parameters: Sequence[Tensor]) -> Tensor:
    """Return the Euclidean norm of each tensor as one vector, at least in fp32.

    If a parameter is divided between ranks, as its attribute ``divided`` says, the norm is that of
    all parts together.
    """
    result = list(torch._foreach_norm(tensors, 2, wide_dtype(tensors)))
    divided: dict[Any, list[int]] = {}
    for index, parameter in enumerate(parameters):
        if (part := getattr(parameter, "divided", None)) is not None:
            divided.setdefault(part.group, []).append(index)
    for group, indices in divided.items():
        squares = torch.stack([result[index] for index in indices]).square()
        dist.all_reduce(squares, group=group)
        for index, norm in zip(indices, squares.sqrt().unbind(), strict=True):
            result[index] = norm
    return torch.stack(result)


def bias_correction(beta: float, steps: Tensor) -> Tensor:
    """Return 1 / (1 − βᵗ), without the cancellation of 1 − 0.999 in fp32."""
    return -1.0 / torch.expm1(steps * math.log(beta))


def adaptive_steps(
    group: dict[str, Any],
    parameters: list[Tensor],
    gradients: Tensors,
    state: dict[str, list[Tensor]],
) -> Tensors:
    """Update both moments of Adam, and return its steps m̂ / (√v̂ + ε) without rate and decay."""
    beta1, beta2 = group["betas"]
    first, second = state["first_moment"], state["second_moment"]
    torch._foreach_lerp_(first, gradients, 1.0 - beta1)
    torch._foreach_mul_(second, beta2)
    torch._foreach_addcmul_(second, gradients, gradients, 1.0 - beta2)
    steps = torch.stack(state["step"]).to(wide_dtype(parameters))
    deviations = torch._foreach_sqrt(scaled(second, bias_correction(beta2, steps)))
    torch._foreach_add_(deviations, group["epsilon"])
    return torch._foreach_div(scaled(first, bias_correction(beta1, steps)), deviations)


def require_moments(betas: tuple[float, float], epsilon: float, weight_decay: float) -> None:
    """Raise ``ValueError`` if a setting of Adam is out of its range."""
    for name, beta in zip(("betas[0]", "betas[1]"), betas, strict=True):
        require_between(name, beta, 0.0, 1.0)
    require_positive("epsilon", epsilon)
    require_non_negative("weight_decay", weight_decay)


def safe_ratios(numerators: Tensor, denominators: Tensor) -> Tensor:
    """Return ``numerators / denominators``, and 1 if either is zero."""
    usable = (numerators > 0) & (denominators > 0)
    return torch.where(usable, numerators / denominators, 1.0)


def scaled(tensors: Tensors, factors: Tensor | float) -> Tensors:
    """Return ``tensors`` times one number, or each times one element of a vector."""
    if isinstance(factors, Tensor) and factors.dim() == 1:
        return torch._foreach_mul(tensors, factors.unbind())
    return torch._foreach_mul(tensors, factors)


def _at_least_fp32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
