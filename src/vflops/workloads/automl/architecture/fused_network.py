"""The network of a candidate with a fused training step, where the kernels apply."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.models.fused_layers import FusedLayer, FusedLayers
from vflops.models.fused_trunk import FusedTrunk, runs_on
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.module_builder import Conv, Dense, Network


def can_fuse(architecture: Architecture, batch: int) -> bool:
    """Whether the kernels of the fused step apply to batches of ``batch`` images."""
    pool, dense = architecture.layers[-2:] if len(architecture.layers) > 2 else (None, None)
    if pool is None or dense is None or (pool.kind, dense.inputs) != ("global-pool", (pool.id,)):
        return False
    if any(layer.kind == "global-pool" for layer in architecture.layers[:-2]):
        return False
    if any(layer.kind == "add" and not layer.relu for layer in architecture.layers):
        return False
    with torch.device("meta"):
        layers = _layers(architecture, Network(architecture))
    last = architecture.layers[-3]
    return pool.inputs == (last.id,) and layers.fit(architecture.shapes, batch)


def fuses_on(device: torch.device) -> bool:
    """Whether networks can be fused on ``device``."""
    return device.type == "cuda" and runs_on(device)


class FusedNetwork(Network):
    """A network whose training step and evaluation are fused.

    It takes over the layers of ``network``, so weights and names of the state are the same. The
    activations have ``dtype``, and parameters stay in fp32.
    """

    def __init__(self, network: Network, architecture: Architecture, dtype: torch.dtype) -> None:
        nn.Module.__init__(self)
        self.layers, self._plan = network.layers, network._plan
        self.dtype, self._known_batches = dtype, dict[int, bool]()
        self._architecture = architecture
        self._trunk = FusedTrunk(_layers(architecture, network), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Return class scores (logits), one row per sample."""
        if not self.training and not self._fuses(len(x)):
            with torch.autocast(x.device.type, self.dtype, enabled=x.device.type != "cpu"):
                return super().forward(x)
        *_, dense = self.layers.values()
        assert isinstance(dense, Dense)
        linear = dense.linear
        with torch.autocast(x.device.type, enabled=False):  # the dtypes are chosen here
            features = self._trunk.features(x) if self.training else self._trunk.evaluate(x)
            return functional.linear(
                features, linear.weight.to(self.dtype), linear.bias.to(self.dtype)
            )

    def _fuses(self, batch: int) -> bool:
        """Whether a batch can be evaluated with the kernels."""
        if batch not in self._known_batches:
            self._known_batches[batch] = can_fuse(self._architecture, batch)
        return self._known_batches[batch]


def _layers(architecture: Architecture, network: Network) -> FusedLayers:
    """Return the layers of a network's trunk: all but the global pooling and the dense layer."""
    layers: list[FusedLayer] = []
    for layer in architecture.layers[:-2]:
        kind = layer.kind
        assert kind != "global-pool" and kind != "dense"
        module = network.layers[str(layer.id)]
        bn = module.norm if isinstance(module, Conv) else module
        layers.append(
            FusedLayer(
                layer.id,
                kind,
                layer.inputs,
                layer.relu,
                module.conv if isinstance(module, Conv) else None,
                bn if isinstance(bn, nn.BatchNorm2d) else None,
                layer.kernel,
                layer.stride,
            )
        )
    return FusedLayers(tuple(layers))
