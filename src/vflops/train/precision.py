"""The training precisions of the papers: types of weights and arithmetic, and loss scaling.

Table 2 of HPC AI500 V3.0 lists FP16 as the default, "mixed" and Int8; V2.0 uses FP32 and mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vflops.errors import UsageError, unknown_name
from vflops.machine.ceilings.precisions import PRECISIONS as PRODUCTS
from vflops.machine.ceilings.precisions import Fp32Mode, fp32_arithmetic
from vflops.machine.ceilings.product_support import (
    emulation_caveat,
    isa_limit,
    product_unavailable_reason,
)
from vflops.machine.devices import Device
from vflops.train import eight_bit, tuned_layers
from vflops.train.eight_bit import Kind

LossScale = float | Literal["dynamic", "none"]

MaximumOverRanks = Callable[[Tensor], Tensor]
"""Returns the maximum of a device scalar over the ranks, so that all see an overflow on one."""

_FIRST_SCALE = 2.0**16


@dataclass(frozen=True)
class _Policy:
    """The definition of a precision, independent of the device."""

    ceiling: str
    weights: torch.dtype = torch.float32
    autocast: torch.dtype | None = None
    loss_scale: LossScale = "none"
    products: Kind | None = None
    """Type of the 8-bit products in layers that support them; None for no such products."""


_POLICIES = {
    "fp32": _Policy("fp32"),
    "tf32": _Policy("tf32"),
    "fp16": _Policy("fp16", torch.float16, torch.float16, "dynamic"),
    "bf16": _Policy("bf16", torch.bfloat16, torch.bfloat16),
    "fp8": _Policy("fp8", torch.bfloat16, torch.bfloat16, products="fp8"),
    "mixed-fp16": _Policy("fp16", autocast=torch.float16, loss_scale="dynamic"),
    "mixed-bf16": _Policy("bf16", autocast=torch.bfloat16),
    "mixed-fp8": _Policy("fp8", autocast=torch.bfloat16, products="fp8"),
    "mixed-int8": _Policy("int8", autocast=torch.bfloat16, products="int8"),
}


@dataclass(frozen=True)
class Precision:
    """A training precision on a device; created with `named`."""

    name: str
    device: torch.device
    ceiling: str
    """Precision of the measured ceiling that the speed of training is compared with."""
    weights: torch.dtype
    """Type of the parameters, except those of batch norm (see `prepare`)."""
    operands: torch.dtype | None
    """Type of products and convolutions under autocast; None without autocast."""
    loss_scale: LossScale
    emulated: str | None
    """A note if the device computes in a wider type and converts the results; otherwise None."""
    products: Kind | None = None
    """Type of the 8-bit products in layers that support them; None for no such products."""

    @classmethod
    def named(
        cls, name: str, device: torch.device | str, *, loss_scale: LossScale | None = None
    ) -> Precision:
        """Return the precision ``name`` on ``device``; raise if the device does not support it.

        ``loss_scale`` None is the default of the precision: dynamic for fp16 gradients.
        """
        if name not in _POLICIES:
            raise unknown_name("training precision", name, _POLICIES)
        policy, target = _POLICIES[name], Device(torch.device(device))
        reason = _unavailable_reason(target, policy)
        if reason is not None:
            raise UsageError(
                f"precision {name} is not available here: {reason}", hint=_hint(reason)
            )
        return cls(
            name=name,
            device=target.torch_device,
            ceiling=policy.ceiling,
            weights=policy.weights,
            operands=policy.autocast,
            loss_scale=_checked_scale(name, policy, loss_scale),
            emulated=emulation_caveat(target, PRODUCTS[policy.ceiling]),
            products=policy.products,
        )

    @property
    def input_dtype(self) -> torch.dtype:
        """The type of the samples when they enter the model."""
        return self.operands or self.weights

    def prepare(self, model: nn.Module) -> nn.Module:
        """Convert the parameters of ``model`` to the right type in place; return the model.

        Pure fp16 leaves batch norm in fp32: its kernels accept fp16 activations with fp32
        parameters, and an fp16 running variance would underflow below 6e-8 and overflow above
        65504. Buffers are not converted, since some need full precision, such as coordinates, and
        autocast converts operands anyway.
        """
        if self.weights is not torch.float32:
            for module in model.modules():
                if not isinstance(module, _BatchNorm):
                    for parameter in module.parameters(recurse=False):
                        parameter.data = parameter.data.to(self.weights)
        if self.products:
            eight_bit.convert(model, self.products, self.operands)
        elif self.operands is torch.bfloat16 and self.device.type == "cuda":
            tuned_layers.convert(model, self.operands)
        return model

    def autocast(self) -> AbstractContextManager[object]:
        """Return a context for the forward pass and the loss; sums, norms and losses stay fp32."""
        if self.operands is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.operands)

    def scaler(self, maximum: MaximumOverRanks = lambda value: value) -> LossScaler:
        """Return a new loss scaler, which does nothing if the precision needs none."""
        return LossScaler(self.device.type, self.loss_scale, maximum)

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Set the accuracy of fp32 products inside the context, and restore it afterwards.

        torch has old and new switches, and its compiler reads both and fails if they contradict
        each other. Setting the old ones also sets the new ones, but sets "exact" only to "follow
        the global switch", so the new ones are set again.
        """
        mode: Fp32Mode = PRODUCTS[self.ceiling].fp32_mode
        products, convolutions = torch.get_float32_matmul_precision(), _cudnn_tf32()
        with fp32_arithmetic(mode):
            torch.set_float32_matmul_precision("high" if mode == "tf32" else "highest")
            torch.backends.cudnn.allow_tf32 = mode == "tf32"
            try:
                with fp32_arithmetic(mode):
                    yield
            finally:
                torch.set_float32_matmul_precision(products)
                torch.backends.cudnn.allow_tf32 = convolutions


class LossScaler(torch.amp.GradScaler):
    """A GradScaler that can keep a static scale and accepts fp16 gradients of fp16 weights."""

    def __init__(
        self, device_type: str, scale: LossScale, maximum: MaximumOverRanks = lambda value: value
    ) -> None:
        self._maximum = maximum
        self.is_static = isinstance(scale, float | int)
        super().__init__(
            device_type,
            init_scale=float(scale) if isinstance(scale, float | int) else _FIRST_SCALE,
            enabled=scale != "none",
        )

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Update the scale after a step; a static scale stays, even if the step was skipped."""
        if new_scale is None and self.is_static:
            new_scale = self._init_scale
        super().update(new_scale)

    def _unscale_grads_(
        self,
        optimizer: torch.optim.Optimizer,
        inv_scale: Tensor,
        found_inf: Tensor,
        allow_fp16: bool,
    ) -> dict[torch.device, Tensor]:
        # torch rejects fp16 gradients, which occur only in pure fp16, not in mixed precision.
        overflows = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16=True)
        return {device: self._maximum(overflow) for device, overflow in overflows.items()}


def _hint(reason: str) -> str:
    other = "use precision fp32, which every device has, or another device"
    variable = isa_limit()
    return f"unset {variable}, or {other}" if variable and variable in reason else other


def _unavailable_reason(device: Device, policy: _Policy) -> str | None:
    if policy.ceiling == "tf32" and device.is_cpu:
        return "a CPU has no tf32"
    if policy.autocast and not torch.amp.is_autocast_available(device.torch_device.type):
        return f"torch has no autocast for {device.name}"
    if policy.ceiling == "fp32":
        return None
    reason = product_unavailable_reason(device, PRODUCTS[policy.ceiling])
    if reason is None and policy.products:  # an emulation would be slow and pointless
        return emulation_caveat(device, PRODUCTS[policy.ceiling])
    return reason


def _checked_scale(name: str, policy: _Policy, requested: LossScale | None) -> LossScale:
    if requested is None or requested == "none":
        return requested or policy.loss_scale
    if policy.autocast is not torch.float16:
        raise UsageError(
            f"precision {name} cannot use loss scale {requested!r}: only fp16 gradients need one",
            hint='omit it, or use "none"',
        )
    if requested != "dynamic" and not 0 < requested < float("inf"):
        raise UsageError(f"loss scale {requested!r} is not a number greater than 0", hint="try 128")
    return requested


def _cudnn_tf32() -> bool:
    allowed: bool = torch.backends.cudnn.allow_tf32
    return allowed
