"""How large a network's activations are, read off its batch norms without any data.

A batch norm's output has its bias as the mean and its weight as the deviation; taken as normal
and, where they are added, as independent, that gives the rest. A new batch norm that is told so
does in training about what it does in evaluation, so a deeper child does not lose its parent's
skill in its first step.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vflops.workloads.automl.architecture.layer_graph import IMAGE, Architecture
from vflops.workloads.automl.architecture.module_builder import Conv, Network

Moments = tuple[Tensor, Tensor]

_LEAST_DEVIATION = 1e-6


def moments(architecture: Architecture, network: Network, id: int) -> Moments:
    """About the mean and the variance of each channel of a layer's result."""
    like = next(network.parameters())
    channels = architecture.input_shape[0]
    found: dict[int, Moments] = {IMAGE: (like.new_zeros(channels), like.new_ones(channels))}
    for layer in architecture.layers:
        taken = [found[source] for source in layer.inputs]
        module = network.layers[str(layer.id)]
        norm = module.norm if isinstance(module, Conv) else module
        if isinstance(norm, nn.BatchNorm2d):
            result = (norm.bias.detach(), norm.weight.detach().square())
        elif layer.kind in ("add", "concat"):
            means, variances = zip(*taken, strict=True)
            if layer.kind == "add":
                result = (torch.stack(means).sum(0), torch.stack(variances).sum(0))
            else:
                result = (torch.cat(means), torch.cat(variances))
        else:
            result = taken[0]
        found[layer.id] = _rectified(*result) if layer.relu else result
        if layer.id == id:
            break
    return found[id]


def _rectified(mean: Tensor, variance: Tensor) -> Moments:
    """Mean and variance of max(x, 0) for a normal x."""
    deviation = variance.sqrt().clamp(min=_LEAST_DEVIATION)
    ratio = mean / deviation
    below = torch.special.ndtr(ratio)
    density = torch.exp(-0.5 * ratio.square()) / math.sqrt(2 * math.pi)
    first = mean * below + deviation * density
    second = (mean.square() + variance) * below + mean * deviation * density
    return first, (second - first.square()).clamp(min=0)
