"""Transfers the weights of a parent network to a child with more capacity.

In evaluation the child has the same outputs as its parent, and its new weights get gradients from
the first step. For each morph:

    deepen       The new convolution is the identity, and its batch norm changes nothing. Its inputs
                 are not negative, so the ReLU changes nothing either.
    widen        Filters are repeated. The layers that use them split their weights unevenly over
                 the copies, so that the copies get different gradients and diverge.
    skip-add     The scale of the new batch norm is 0.
    skip-concat  The weights for the new channels are 0.
    kernel       Kernels are padded with zeros.
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
from vflops.workloads.automl.architecture.widths import WidthGroups

_SHARE_SPREAD = 0.5
"""The shares of copies vary by a factor of 1 ± this, before they are normalised to sum to 1."""


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
            f"weights can be transferred only from a Network, not from a {type(parent).__name__}",
            hint="unwrap the module, or build(parent_architecture) and load its state",
        )
    if morphs.apply(parent_architecture, morph) != child_architecture:
        raise UsageError(
            f"the child is not the result of applying morph {morph.kind} to its parent"
        )
    parameter = next(parent.parameters())
    child = build(child_architecture, generator).to(parameter.device, parameter.dtype)
    origins = _origins(parent_architecture, morph, child_architecture, generator)
    for layer in child_architecture.layers:
        module = child.layers[str(layer.id)]
        if layer.id in parent_architecture.layer:
            input_origins, output_origins = origins[layer.inputs[0]], origins[layer.id]
            _inherit(module, parent.layers[str(layer.id)], input_origins, output_origins, generator)
        elif morph.kind == "deepen":
            mean, variance = moments(parent_architecture, parent, morph.layer)
            _make_identity(module, mean, variance)
        elif layer.kind in ("conv", "norm"):
            nn.init.zeros_(_norm(module).weight)
    return child.train(parent.training)


def _origins(
    parent: Architecture, morph: Morph, child: Architecture, generator: torch.Generator
) -> Mapping[int, Tensor]:
    """Return for every layer the parent's channel that each channel copies, or -1 if it is new."""
    widened = set(WidthGroups(parent).group(morph.layer)) if morph.kind == "widen" else set[int]()
    widened_origins = _widened_origins(parent.layer[morph.layer], morph, generator)
    origins = {IMAGE: torch.arange(child.input_shape[0])}
    for layer in child.layers:
        input_origins = [origins[source] for source in layer.inputs]
        if layer.kind == "concat":
            parent_layer = parent.layer.get(layer.id)
            origins[layer.id] = _concatenated_origins(parent, parent_layer, input_origins)
        elif layer.kind in ("conv", "dense"):
            unchanged = torch.arange(child.shapes[layer.id][0])
            origins[layer.id] = widened_origins if layer.id in widened else unchanged
        else:
            origins[layer.id] = input_origins[0]
    return origins


def _widened_origins(layer: Layer, morph: Morph, generator: torch.Generator) -> Tensor:
    """Return the origins of a widened layer: each channel once, then randomly chosen repeats."""
    filters = torch.arange(layer.filters)
    extra = (morph.filters or 0) - layer.filters
    if extra <= 0:
        return filters
    repeats = filters[torch.randperm(layer.filters, generator=generator)]
    return torch.cat([filters, repeats.repeat(-(-extra // layer.filters))[:extra]])


def _concatenated_origins(
    parent: Architecture, parent_layer: Layer | None, input_origins: list[Tensor]
) -> Tensor:
    if parent_layer is None:
        return torch.cat(
            [input_origins[0], *(torch.full_like(channels, -1) for channels in input_origins[1:])]
        )
    parts, offset = [], 0
    for source, channels in zip(parent_layer.inputs, input_origins, strict=True):
        parts.append(torch.where(channels < 0, channels, channels + offset))
        offset += parent.shapes[source][0]
    return torch.cat(parts)


def _inherit(
    module: nn.Module,
    old: nn.Module,
    input_origins: Tensor,
    output_origins: Tensor,
    generator: torch.Generator,
) -> None:
    if isinstance(module, Conv) and isinstance(old, Conv):
        padding = (module.conv.kernel_size[0] - old.conv.kernel_size[0]) // 2
        weight = functional.pad(old.conv.weight, [padding] * 4)[
            output_origins.to(old.conv.weight.device)
        ]
        module.conv.weight.copy_(_split(weight, input_origins, generator))
        _copy_norm(module.norm, old.norm, output_origins)
    elif isinstance(module, nn.BatchNorm2d) and isinstance(old, nn.BatchNorm2d):
        _copy_norm(module, old, output_origins)
    elif isinstance(module, Dense) and isinstance(old, Dense):
        module.linear.weight.copy_(_split(old.linear.weight, input_origins, generator))
        module.linear.bias.copy_(old.linear.bias)


def _split(weight: Tensor, input_origins: Tensor, generator: torch.Generator) -> Tensor:
    """Return a layer's weights for its new inputs.

    They are 0 for new channels, and split between the copies of a repeated channel.
    """
    rows, channels = weight.shape[:2]
    inherited = input_origins >= 0
    if len(input_origins) == channels and bool((input_origins == torch.arange(channels)).all()):
        return weight
    share = 1 + _SHARE_SPREAD * (2 * torch.rand(rows, len(input_origins), generator=generator) - 1)
    share = torch.where(inherited, share, 0).to(weight.device, weight.dtype)
    source = input_origins.clamp(min=0).to(weight.device)
    totals = torch.zeros(rows, channels, device=weight.device, dtype=weight.dtype)
    share /= totals.index_add_(1, source, share)[:, source]
    return weight[:, source] * share.reshape(*share.shape, *[1] * (weight.dim() - 2))


def _copy_norm(new: nn.BatchNorm2d, old: nn.BatchNorm2d, output_origins: Tensor) -> None:
    state = old.state_dict()
    for name, tensor in new.state_dict().items():
        tensor.copy_(state[name][output_origins.to(tensor.device)] if tensor.dim() else state[name])


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
