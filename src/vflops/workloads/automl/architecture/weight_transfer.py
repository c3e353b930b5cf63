"""Transfers weights to a child: same outputs as its parent in evaluation, but more capacity.

How each morph is exact, and can learn from the first step:

    deepen       an identity convolution, whose batch norm cancels itself; inputs are ≥ 0, so the
                 ReLU changes nothing
    widen        filters are repeated; consumers split their weights unevenly over the copies, so
                 that the copies get different gradients and diverge
    skip-add     the new batch norm scales by 0, a weight that gets a gradient at once
    skip-concat  the weights for the new channels are 0, and get gradients at once
    kernel       padded with zeros
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.errors import UsageError
from vflops.workloads.automl.architecture import morphs
from vflops.workloads.automl.architecture.activation_moments import moments
from vflops.workloads.automl.architecture.layer_graph import IMAGE, Architecture, Layer
from vflops.workloads.automl.architecture.module_builder import Conv, Dense, Network, build
from vflops.workloads.automl.architecture.morphs import Morph
from vflops.workloads.automl.architecture.widths import Widths

_UNEVEN = 0.5
"""Shares of a weight vary by 1 ± this between copies, before they are normalised to sum to 1."""


@torch.no_grad()
def transfer(
    parent: nn.Module,
    parent_architecture: Architecture,
    morph: Morph,
    child_architecture: Architecture,
    generator: torch.Generator,
) -> Network:
    """Return the child with its parent's weights, on the same device and in the same precision.

    ``generator`` is a CPU generator, so that the child is the same on any device.
    """
    if not isinstance(parent, Network):
        raise UsageError(
            f"weights are transferred from a built architecture, not a {type(parent).__name__}",
            hint="unwrap the module, or build(parent_architecture) and load its state",
        )
    if morphs.apply(parent_architecture, morph) != child_architecture:
        raise UsageError(f"the child is not the result of morph {morph.kind} on its parent")
    like = next(parent.parameters())
    child = build(child_architecture, generator).to(like.device, like.dtype)
    origins = _origins(parent_architecture, morph, child_architecture, generator)
    for layer in child_architecture.layers:
        module = child.layers[str(layer.id)]
        if layer.id in parent_architecture.layer:
            read, given = origins[layer.inputs[0]], origins[layer.id]
            _inherit(module, parent.layers[str(layer.id)], read, given, generator)
        elif morph.kind == "deepen":
            mean, variance = moments(parent_architecture, parent, morph.layer)
            _make_identity(module, mean, variance)
        elif layer.kind in ("conv", "norm"):
            nn.init.zeros_(_norm(module).weight)
    return child.train(parent.training)


def _origins(
    parent: Architecture, morph: Morph, child: Architecture, generator: torch.Generator
) -> Mapping[int, Tensor]:
    """For every layer of the child, the parent's channel that each channel copies; -1: new."""
    widened = set(Widths(parent).group(morph.layer)) if morph.kind == "widen" else set[int]()
    copies = _copies(parent.layer[morph.layer], morph, generator)
    origins = {IMAGE: torch.arange(child.input_shape[0])}
    for layer in child.layers:
        taken = [origins[source] for source in layer.inputs]
        if layer.kind == "concat":
            before = parent.layer.get(layer.id)
            origins[layer.id] = _side_by_side(parent, before, taken)
        elif layer.kind in ("conv", "dense"):
            same = torch.arange(child.shapes[layer.id][0])
            origins[layer.id] = copies if layer.id in widened else same
        else:
            origins[layer.id] = taken[0]
    return origins


def _copies(layer: Layer, morph: Morph, generator: torch.Generator) -> Tensor:
    """The channels of a widened layer: all of them once, then randomly chosen repetitions."""
    filters = torch.arange(layer.filters)
    more = (morph.filters or 0) - layer.filters
    if more <= 0:
        return filters
    again = filters[torch.randperm(layer.filters, generator=generator)]
    return torch.cat([filters, again.repeat(-(-more // layer.filters))[:more]])


def _side_by_side(parent: Architecture, before: Layer | None, taken: list[Tensor]) -> Tensor:
    if before is None:
        return torch.cat([taken[0], *(torch.full_like(channels, -1) for channels in taken[1:])])
    parts, offset = [], 0
    for source, channels in zip(before.inputs, taken, strict=True):
        parts.append(torch.where(channels < 0, channels, channels + offset))
        offset += parent.shapes[source][0]
    return torch.cat(parts)


def _inherit(
    module: nn.Module, old: nn.Module, read: Tensor, given: Tensor, generator: torch.Generator
) -> None:
    if isinstance(module, Conv) and isinstance(old, Conv):
        grown = (module.conv.kernel_size[0] - old.conv.kernel_size[0]) // 2
        weight = functional.pad(old.conv.weight, [grown] * 4)[given.to(old.conv.weight.device)]
        module.conv.weight.copy_(_split(weight, read, generator))
        _copy_norm(module.norm, old.norm, given)
    elif isinstance(module, nn.BatchNorm2d) and isinstance(old, nn.BatchNorm2d):
        _copy_norm(module, old, given)
    elif isinstance(module, Dense) and isinstance(old, Dense):
        module.linear.weight.copy_(_split(old.linear.weight, read, generator))
        module.linear.bias.copy_(old.linear.bias)


def _split(weight: Tensor, read: Tensor, generator: torch.Generator) -> Tensor:
    """Weights for the channels ``read``: 0 for new ones, split over copies of the same channel."""
    rows, channels = weight.shape[:2]
    old = read >= 0
    if len(read) == channels and bool((read == torch.arange(channels)).all()):
        return weight
    share = 1 + _UNEVEN * (2 * torch.rand(rows, len(read), generator=generator) - 1)
    share = torch.where(old, share, 0).to(weight.device, weight.dtype)
    source = read.clamp(min=0).to(weight.device)
    whole = torch.zeros(rows, channels, device=weight.device, dtype=weight.dtype)
    share /= whole.index_add_(1, source, share)[:, source]
    return weight[:, source] * share.reshape(*share.shape, *[1] * (weight.dim() - 2))


def _copy_norm(new: nn.BatchNorm2d, old: nn.BatchNorm2d, given: Tensor) -> None:
    state = old.state_dict()
    for name, tensor in new.state_dict().items():
        tensor.copy_(state[name][given.to(tensor.device)] if tensor.dim() else state[name])


def _make_identity(module: nn.Module, mean: Tensor, variance: Tensor) -> None:
    assert isinstance(module, Conv)
    nn.init.dirac_(module.conv.weight)
    norm = _norm(module)
    norm.load_state_dict(
        {
            "running_mean": mean,
            "running_var": variance,
            "num_batches_tracked": torch.tensor(0),
            "weight": (variance + norm.eps).sqrt(),
            "bias": mean,
        }
    )


def _norm(module: nn.Module) -> nn.BatchNorm2d:
    norm = module.norm if isinstance(module, Conv) else module
    assert isinstance(norm, nn.BatchNorm2d)
    return norm
