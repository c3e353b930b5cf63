"""Batch norm over parts of a batch, or over the batches of all ranks.

State dicts are the same as those of torch's layers. The number of samples behind the statistics is
part of the method: fewer samples make them noisier, which changes the quality that a recipe
reaches. There are three kinds:

- *local*: over the samples of one rank, with torch's own layers.
- *ghost*: over each of ``ghosts`` equal parts of a rank's samples (Hoffer et al. 2017). One rank
  with k ghosts computes the same as k ranks with local batch norm.
- *synchronised*: over the samples of all ranks. torch.nn.SyncBatchNorm does the same, but only on
  accelerators, and it makes the host wait in every layer.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from vflops.errors import unknown_name

Group = dist.ProcessGroup | None
"""A process group; None for all ranks."""


class _Ghost(_BatchNorm):
    """Batch norm of consecutive parts of a batch, computed together."""

    def __init__(self, *args: Any, ghosts: int = 1, **options: Any) -> None:
        super().__init__(*args, **options)
        if ghosts < 1:
            raise ValueError(f"ghosts is {ghosts!r}: expected an integer of 1 or more")
        self.ghosts = ghosts

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised ``input``; in training, with the statistics of each part."""
        if not self.training or self.ghosts == 1:
            return super().forward(input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        if input.shape[0] % self.ghosts:
            raise ValueError(
                f"a batch of {input.shape[0]} cannot be divided into {self.ghosts} equal ghosts"
            )
        # Splitting the first dimension gives a view in any memory format.
        parts = _wide(input).unflatten(0, (self.ghosts, -1))
        axes = (1, *range(3, parts.dim()))
        mean = parts.mean(axes, keepdim=True)
        centred = parts - mean  # the one large tensor that the backward pass keeps
        variance = centred.square().mean(axes, keepdim=True)
        _track(
            self,
            mean.detach().mean(0).flatten(),
            variance.detach().mean(0).flatten(),
            input.numel() // (self.ghosts * self.num_features),
        )
        scale = torch.rsqrt(variance + self.eps)
        if self.weight is not None:
            scale = scale * _by_channel(self.weight, parts.dim() - 3)
        result: Tensor = centred * scale
        if self.bias is not None:
            result = result + _by_channel(self.bias, parts.dim() - 3)
        return result.flatten(0, 1).to(input.dtype)

    def extra_repr(self) -> str:
        """Return torch's text and the number of ghosts."""
        text = super().extra_repr()  # type: ignore[no-untyped-call]
        return f"{text}, ghosts={self.ghosts}"


class _Synchronised(_BatchNorm):
    """Batch norm over the batches of all ranks of a group."""

    def __init__(self, *args: Any, group: Group = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.group = group

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised ``input``; in training, with the statistics over all ranks."""
        if not self.training or _ranks(self.group) == 1:
            return super().forward(input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        x = _wide(input)
        variance, mean = torch.var_mean(x, (0, *range(2, x.dim())), correction=0)
        count = mean.new_full((1,), input.numel() // self.num_features)
        moments = torch.cat([mean, variance, count])
        rows: Tensor = _Gather.apply(moments, self.group)  # type: ignore[no-untyped-call]
        means, variances, counts = rows.split([self.num_features, self.num_features, 1], dim=1)
        total = counts.sum()
        # Moments of a union from those of its parts (Chan et al. 1979), without cancellation.
        mean = (counts * means).sum(0) / total
        variance = (counts * (variances + (means - mean).square())).sum(0) / total
        _track(self, mean.detach(), variance.detach(), total.detach())
        scale = torch.rsqrt(variance + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        shift = -mean * scale
        if self.bias is not None:
            shift = shift + self.bias
        result = x * _by_channel(scale, x.dim() - 2) + _by_channel(shift, x.dim() - 2)
        return result.to(input.dtype)


class GhostBatchNorm1d(_Ghost, nn.BatchNorm1d):
    """`GhostBatchNorm2d` for features or sequences."""


class GhostBatchNorm2d(_Ghost, nn.BatchNorm2d):
    """nn.BatchNorm2d that in training normalises ``ghosts`` equal consecutive parts separately.

    Running statistics are updated with the averages of the parts' means and unbiased variances,
    which gives the average of the running statistics of that many ranks.
    """


class GhostBatchNorm3d(_Ghost, nn.BatchNorm3d):
    """`GhostBatchNorm2d` for volumes."""


class SynchronisedBatchNorm1d(_Synchronised, nn.BatchNorm1d):
    """`SynchronisedBatchNorm2d` for features or sequences."""


class SynchronisedBatchNorm2d(_Synchronised, nn.BatchNorm2d):
    """nn.BatchNorm2d with statistics, gradients and running statistics over all ranks."""


class SynchronisedBatchNorm3d(_Synchronised, nn.BatchNorm3d):
    """`SynchronisedBatchNorm2d` for volumes."""


_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_KINDS: dict[str, tuple[type[_BatchNorm], ...]] = {
    "local": _PLAIN,
    "ghost": (GhostBatchNorm1d, GhostBatchNorm2d, GhostBatchNorm3d),
    "synchronised": (SynchronisedBatchNorm1d, SynchronisedBatchNorm2d, SynchronisedBatchNorm3d),
}


def convert(model: nn.Module, kind: str, ghosts: int = 1, group: Group = None) -> nn.Module:
    """Replace every batch norm of ``model`` by one of ``kind``, in place; return the model.

    The parameters stay the same. The result is a new object only if the model itself is a batch
    norm.
    """
    if kind not in _KINDS:
        raise unknown_name("kind of batch norm", kind, _KINDS)
    if ghosts != 1 and kind != "ghost":
        raise ValueError(f"ghosts is {ghosts!r}: {kind} batch norm has no ghosts")
    by_kind: dict[str, dict[str, Any]] = {
        "ghost": {"ghosts": ghosts},
        "synchronised": {"group": group},
    }
    options = by_kind.get(kind, {})
    replacements: dict[nn.Module | None, nn.Module] = {
        layer: _replacement(layer, kind, options)
        for layer in model.modules()
        if isinstance(layer, _PLAIN)
    }
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):  # named_children skips repeated layers
            if child in replacements:
                setattr(parent, name, replacements[child])
    return replacements.get(model, model)


def average_buffers(model: nn.Module, group: Group = None) -> None:
    """Replace running statistics by their mean over the ranks, in one message.

    Local batch norm needs this before evaluations and checkpoints. Other buffers are constants,
    whose last digit averaging could change.
    """
    ranks = _ranks(group)
    running = [
        buffer
        for layer in model.modules()
        if isinstance(layer, _NormBase)
        for buffer in (layer.running_mean, layer.running_var)
        if buffer is not None
    ]
    if ranks == 1 or not running:
        return
    flat = torch.cat([buffer.flatten() for buffer in running])
    dist.all_reduce(flat, group=group)
    flat /= ranks
    means = flat.split([buffer.numel() for buffer in running])
    for buffer, mean in zip(running, means, strict=True):
        buffer.copy_(mean.view_as(buffer))


def _replacement(layer: _BatchNorm, kind: str, options: dict[str, Any]) -> nn.Module:
    dimensions = next(i for i, plain in enumerate(_PLAIN) if isinstance(layer, plain))
    new = _KINDS[kind][dimensions](
        layer.num_features,
        layer.eps,
        layer.momentum,
        layer.affine,
        layer.track_running_stats,
        device="meta",  # its tensors are replaced below
        **options,
    )
    for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        setattr(new, name, getattr(layer, name))
    return new.train(layer.training)


class _Gather(torch.autograd.Function):
    """Gathers the ranks' vectors as rows; each rank receives the gradient of its own row."""

    @staticmethod
    def forward(ctx: Any, row: Tensor, group: Group) -> Tensor:
        ctx.group = group
        rows = row.new_empty(_ranks(group), row.numel())
        dist.all_gather(list(rows.unbind()), row, group=group)
        return rows

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total[dist.get_rank(ctx.group)], None


@torch.no_grad()
def _track(layer: _BatchNorm, mean: Tensor, variance: Tensor, count: int | Tensor) -> None:
    """Update the running statistics with a mean and a biased variance of ``count`` values."""
    if isinstance(count, int) and count < 2:
        raise ValueError(
            f"batch norm cannot train on {count} value per channel: it needs 2 or more"
        )
    if layer.running_mean is None or layer.running_var is None:
        return
    assert layer.num_batches_tracked is not None
    layer.num_batches_tracked.add_(1)
    if layer.momentum is None:  # as in torch: the mean over all batches
        weight: float | Tensor = layer.num_batches_tracked.to(mean.dtype).reciprocal()
    else:
        weight = layer.momentum
    layer.running_mean.lerp_(mean, weight)
    layer.running_var.lerp_(variance * (count / (count - 1)), weight)


def _wide(x: Tensor) -> Tensor:
    """Return ``x`` at least in fp32, for statistics as in torch's own kernels."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _by_channel(values: Tensor, trailing: int) -> Tensor:
    return values.view(-1, *[1] * trailing)


def _ranks(group: Group) -> int:
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1
