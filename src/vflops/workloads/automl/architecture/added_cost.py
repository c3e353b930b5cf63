"""Computes what morphs add to the cost of a network, without building the child."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vflops.workloads.automl.architecture import surgery
from vflops.workloads.automl.architecture.layer_graph import IMAGE, Architecture, Layer
from vflops.workloads.automl.architecture.widths import WidthGroups

if TYPE_CHECKING:
    from vflops.workloads.automl.architecture.morphs import Morph

CostKey = tuple[Any, ...]
"""A key that groups morphs by the cost they add; it can be compared, but is not a number."""

_DEEPEN_KERNEL = 3
"""The kernel size that ``surgery.deepen`` inserts."""


class AddedCost:
    """The cost that morphs add to one architecture."""

    def __init__(self, architecture: Architecture) -> None:
        self._architecture = architecture
        self._widths = WidthGroups(architecture)

    def parameters(self, morph: Morph) -> int:
        """Return how many parameters a morph adds."""
        network = self._architecture
        layer, channels = network.layer[morph.layer], network.shapes[morph.layer][0]
        match morph.kind:
            case "deepen":
                return channels * (channels * _DEEPEN_KERNEL**2 + 2)
            case "kernel":
                weights = layer.filters * network.shapes[layer.inputs[0]][0]
                return weights * ((morph.kernel or 0) ** 2 - layer.kernel**2)
            case "widen":
                return self._parameters_of_widening(layer, morph.filters or 0)
        start_shape = network.shapes[morph.start or IMAGE]
        if morph.kind == "skip-add":
            same_shape = start_shape == network.shapes[morph.layer]
            return 2 * channels if same_shape else channels * (start_shape[0] + 2)
        consumers = surgery.flexible_consumers(network, morph.layer)
        return start_shape[0] * sum(
            self._parameters_per_input_channel(consumer) for consumer in consumers
        )

    def cost_key(self, morph: Morph) -> CostKey:
        """Return a key, equal for morphs that add the same parameters, operations and bytes."""
        network = self._architecture
        layer, shape = network.layer[morph.layer], network.shapes[morph.layer]
        match morph.kind:
            case "deepen":
                return morph.kind, shape
            case "kernel":
                return morph.kind, morph.kernel, self._layer_key(layer)
            case "widen":
                changed = self._layers_changed_by_widening(layer.id)
                keys = sorted(
                    (self._layer_key(layer), widened, counts) for layer, widened, counts in changed
                )
                return morph.kind, morph.filters, *keys
            case "skip-add":
                return morph.kind, network.shapes[morph.start or IMAGE], shape
        consumers = surgery.flexible_consumers(network, morph.layer)
        keys = sorted(self._layer_key(consumer) for consumer in consumers)
        return morph.kind, network.shapes[morph.start or IMAGE], shape, *keys

    def _parameters_of_widening(self, layer: Layer, filters: int) -> int:
        network, extra, added = self._architecture, filters - layer.filters, 0
        for changed, widened, counts in self._layers_changed_by_widening(layer.id):
            input_channels = network.shapes[changed.inputs[0]][0] + extra * counts[0]
            match changed.kind:
                case "conv":
                    output_channels = changed.filters + extra * widened
                    after = output_channels * (input_channels * changed.kernel**2 + 2)
                    added += after - network.parameters_of(changed)
                case "dense":
                    added += network.classes * extra * counts[0]
                case "norm":
                    added += 2 * extra * counts[0]
        return added

    def _layers_changed_by_widening(self, id: int) -> list[tuple[Layer, bool, tuple[int, ...]]]:
        """Return the layers that change if a convolution is widened, as (layer, widened, counts).

        ``widened`` is whether the layer itself becomes wider. ``counts`` has one number per input:
        how many of the convolutions that its channels come from become wider.
        """
        group = set(self._widths.group(id))
        changed = []
        for layer in self._architecture.layers:
            sources = (self._widths.sources[source] for source in layer.inputs)
            counts = tuple(sum(source in group for source in origins) for origins in sources)
            if layer.id in group or any(counts):
                changed.append((layer, layer.id in group, counts))
        return changed

    def _parameters_per_input_channel(self, layer: Layer) -> int:
        """Return the parameters that one more input channel adds to a layer."""
        if layer.kind == "conv":
            return layer.filters * layer.kernel**2
        return self._architecture.classes * len(self._architecture.consumers[layer.id])

    def _layer_key(self, layer: Layer) -> CostKey:
        """Return everything that the cost of a layer depends on, including its consumers."""
        network = self._architecture
        shapes = tuple(network.shapes[source] for source in (*layer.inputs, layer.id))
        consumers = sorted({consumer.kind for consumer in network.consumers[layer.id]})
        fields = layer.kind, layer.filters, layer.kernel, layer.relu, IMAGE in layer.inputs
        return *fields, shapes, tuple(consumers)
