"""Estimates mean and variance of a network's activations from its batch norms, without data.

The output of a batch norm has its bias as mean and its weight as standard deviation. Assuming
normal and, in sums, independent values gives the rest. A new batch norm with these statistics
behaves in training about as in evaluation, so a deeper child does not lose its parent's accuracy
in the first step.
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
    """Return the approximate mean and variance of each channel of a layer's output."""
    like = next(network.parameters())
    channels = architecture.input_shape[0]
    known: dict[int, Moments] = {IMAGE: (like.new_zeros(channels), like.new_ones(channels))}
    for layer in architecture.layers:
        taken = [known[source] for source in layer.inputs]
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
        known[layer.id] = _rectified(*result) if layer.relu else result
        if layer.id == id:
            break
    return known[id]


def _rectified(mean: Tensor, variance: Tensor) -> Moments:
    """Return mean and variance of max(x, 0) for normally distributed x."""
    deviation = variance.sqrt().clamp(min=_LEAST_DEVIATION)
    ratio = mean / deviation
    below = torch.special.ndtr(ratio)
    density = torch.exp(-0.5 * ratio.square()) / math.sqrt(2 * math.pi)
    first = mean * below + deviation * density
    second = (mean.square() + variance) * below + mean * deviation * density
    return first, (second - first.square()).clamp(min=0)
