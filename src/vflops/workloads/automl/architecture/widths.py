"""Groups of convolutions that must have the same width because their outputs are added."""

from __future__ import annotations

from vflops.workloads.automl.architecture.layer_graph import IMAGE, Architecture


class WidthGroups:
    """The convolutions of an architecture in groups of equal width."""

    def __init__(self, architecture: Architecture) -> None:
        self._parent: dict[int, int] = {IMAGE: IMAGE}
        self.sources: dict[int, tuple[int, ...]] = {IMAGE: (IMAGE,)}
        """For every layer, the convolutions that its channels come from, in order."""
        for layer in architecture.layers:
            input_sources = [self.sources[source] for source in layer.inputs]
            if layer.kind == "conv":
                self._parent[layer.id] = layer.id
                self.sources[layer.id] = (layer.id,)
            elif layer.kind == "concat":
                self.sources[layer.id] = tuple(id for sources in input_sources for id in sources)
            else:
                self.sources[layer.id] = input_sources[0]
                if layer.kind == "add":
                    self._join(input_sources)

    def group(self, id: int) -> tuple[int, ...]:
        """Return all convolutions that are widened with ``id``; empty if its width is fixed."""
        root = self._root(id)
        if root == self._root(IMAGE):
            return ()
        return tuple(other for other in self._parent if self._root(other) == root)

    def groups(self) -> list[tuple[int, ...]]:
        """Return every group that can be widened, in the order of the layers."""
        groups: dict[int, list[int]] = {}
        for id in self._parent:
            groups.setdefault(self._root(id), []).append(id)
        return [tuple(ids) for root, ids in groups.items() if root != self._root(IMAGE)]

    def _join(self, operands: list[tuple[int, ...]]) -> None:
        """Put the operands of a sum into one group, with fixed width if one is a concat.

        Widening one part of a concat would insert channels in the middle of the sum.
        """
        fixed = any(len(sources) > 1 for sources in operands)
        first = IMAGE if fixed else operands[0][0]
        for sources in operands:
            for id in sources:
                low, high = sorted((self._root(first), self._root(id)))
                self._parent[high] = low

    def _root(self, id: int) -> int:
        while self._parent[id] != id:
            self._parent[id] = self._parent[self._parent[id]]
            id = self._parent[id]
        return id
