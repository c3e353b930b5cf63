"""What morphs add to the cost of a network, computed without building the child."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vflops.workloads.automl.architecture import surgery
from vflops.workloads.automl.architecture.layer_graph import IMAGE, Architecture, Layer
from vflops.workloads.automl.architecture.widths import Widths

if TYPE_CHECKING:
    from vflops.workloads.automl.architecture.morphs import Morph

Cost = tuple[Any, ...]

_DEEPENED = 3
"""The kernel size that ``surgery.deepen`` inserts."""


class Added:
    """The costs that morphs of one architecture add."""

    def __init__(self, architecture: Architecture) -> None:
        self._architecture = architecture
        self._widths = Widths(architecture)

    def parameters(self, morph: Morph) -> int:
        """Return how many parameters a morph adds."""
        network = self._architecture
        layer, channels = network.layer[morph.layer], network.shapes[morph.layer][0]
        match morph.kind:
            case "deepen":
                return channels * (channels * _DEEPENED**2 + 2)
            case "kernel":
                weights = layer.filters * network.shapes[layer.inputs[0]][0]
                return weights * ((morph.kernel or 0) ** 2 - layer.kernel**2)
            case "widen":
                return self._of_wider(layer, morph.filters or 0)
        start = network.shapes[morph.start or IMAGE]
        if morph.kind == "skip-add":
            same = start == network.shapes[morph.layer]
            return 2 * channels if same else channels * (start[0] + 2)
        takers = surgery.flexible_takers(network, morph.layer)
        return start[0] * sum(self._per_channel(taker) for taker in takers)

    def cost(self, morph: Morph) -> Cost:
        """Return a key, equal for morphs that add the same parameters, operations and bytes."""
        network = self._architecture
        layer, shape = network.layer[morph.layer], network.shapes[morph.layer]
        match morph.kind:
            case "deepen":
                return morph.kind, shape
            case "kernel":
                return morph.kind, morph.kernel, self._facts(layer)
            case "widen":
                wider = self._wider(layer.id)
                facts = sorted(
                    (self._facts(layer), widened, times) for layer, widened, times in wider
                )
                return morph.kind, morph.filters, *facts
            case "skip-add":
                return morph.kind, network.shapes[morph.start or IMAGE], shape
        takers = surgery.flexible_takers(network, morph.layer)
        facts = sorted(self._facts(taker) for taker in takers)
        return morph.kind, network.shapes[morph.start or IMAGE], shape, *facts

    def _of_wider(self, layer: Layer, filters: int) -> int:
        network, more, added = self._architecture, filters - layer.filters, 0
        for changed, widened, times in self._wider(layer.id):
            taken = network.shapes[changed.inputs[0]][0] + more * times[0]
            match changed.kind:
                case "conv":
                    given = changed.filters + more * widened
                    after = given * (taken * changed.kernel**2 + 2)
                    added += after - network.parameters_of(changed)
                case "dense":
                    added += network.classes * more * times[0]
                case "norm":
                    added += 2 * more * times[0]
        return added

    def _wider(self, id: int) -> list[tuple[Layer, bool, tuple[int, ...]]]:
        """Return the layers that change if a convolution is widened.

        With each: whether it is widened itself, and how many of the sources of each input are.
        """
        group = set(self._widths.group(id))
        changed = []
        for layer in self._architecture.layers:
            sources = (self._widths.sources[source] for source in layer.inputs)
            times = tuple(sum(source in group for source in known) for known in sources)
            if layer.id in group or any(times):
                changed.append((layer, layer.id in group, times))
        return changed

    def _per_channel(self, layer: Layer) -> int:
        """Return the parameters that one more input channel adds to a layer."""
        if layer.kind == "conv":
            return layer.filters * layer.kernel**2
        return self._architecture.classes * len(self._architecture.consumers[layer.id])

    def _facts(self, layer: Layer) -> Cost:
        """What the cost of a layer depends on, including its consumers."""
        network = self._architecture
        shapes = tuple(network.shapes[source] for source in (*layer.inputs, layer.id))
        takers = sorted({taker.kind for taker in network.consumers[layer.id]})
        fields = layer.kind, layer.filters, layer.kernel, layer.relu, IMAGE in layer.inputs
        return *fields, shapes, tuple(takers)
