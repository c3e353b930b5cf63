"""Estimates mean and variance of a network's activations from its batch norms, without data.

The output of a batch norm has its bias as mean and its weight as standard deviation. The moments of
other layers follow if values are normally distributed and the terms of a sum are independent. A new
batch norm with these statistics behaves in training about as in evaluation, so a deeper child does
not lose its parent's accuracy in the first step.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vflops.workloads.automl.architecture.layer_graph import IMAGE, Architecture
from vflops.workloads.automl.architecture.module_builder import Conv, Network

Moments = tuple[Tensor, Tensor]

_MIN_DEVIATION = 1e-6


def moments(architecture: Architecture, network: Network, id: int) -> Moments:
    """Return the approximate mean and variance of each channel of a layer's output."""
    parameter = next(network.parameters())
    channels = architecture.input_shape[0]
    estimates: dict[int, Moments] = {
        IMAGE: (parameter.new_zeros(channels), parameter.new_ones(channels))
    }
    for layer in architecture.layers:
        inputs = [estimates[source] for source in layer.inputs]
        module = network.layers[str(layer.id)]
        norm = module.norm if isinstance(module, Conv) else module
        if isinstance(norm, nn.BatchNorm2d):
            result = (norm.bias.detach(), norm.weight.detach().square())
        elif layer.kind in ("add", "concat"):
            means, variances = zip(*inputs, strict=True)
            if layer.kind == "add":
                result = (torch.stack(means).sum(0), torch.stack(variances).sum(0))
            else:
                result = (torch.cat(means), torch.cat(variances))
        else:
            result = inputs[0]
        estimates[layer.id] = _relu_moments(*result) if layer.relu else result
        if layer.id == id:
            break
    return estimates[id]


def _relu_moments(mean: Tensor, variance: Tensor) -> Moments:
    """Return mean and variance of max(x, 0) for normally distributed x."""
    deviation = variance.sqrt().clamp(min=_MIN_DEVIATION)
    ratio = mean / deviation
    positive = torch.special.ndtr(ratio)  # the probability that x > 0
    density = torch.exp(-0.5 * ratio.square()) / math.sqrt(2 * math.pi)
    first_moment = mean * positive + deviation * density
    second_moment = (mean.square() + variance) * positive + mean * deviation * density
    return first_moment, (second_moment - first_moment.square()).clamp(min=0)
