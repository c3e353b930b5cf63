"""Drawings of networks: the main chain as a column of boxes, skip connections as arcs."""

from __future__ import annotations

from math import log2

from markupsafe import escape

from vflops.publish.pages.chart_style import ACHIEVED
from vflops.workloads.automl.architecture.layer_graph import IMAGE, MERGES, Architecture, Layer

_ROW_HEIGHT, _BOX_HEIGHT = 26, 20
"""The heights of a row and of its box."""
_CENTRE, _MIN_WIDTH, _MAX_WIDTH = 330, 90, 250
"""The horizontal centre of the column, and the minimum and maximum width of a box."""
_SHAPE_X = _CENTRE + _MAX_WIDTH // 2 + 24
_WIDTH = _SHAPE_X + 190
_FONT = 'font-family="system-ui, sans-serif" font-size="12"'
_COLOURS = {
    "conv": "#2f6fb0",
    "norm": "#6b4c9a",
    "max-pool": "#c77d11",
    "global-pool": "#c77d11",
    "add": "#2e8b3d",
    "concat": "#1b9e9e",
    "dense": "#444c56",
}
_KERNEL_COLOURS = {1: "#7ba7d1", 3: "#2f6fb0", 5: "#245a92", 7: "#173f6b"}
"""Colours of convolutions: larger kernels are darker."""


def draw_network(network: Architecture, first: Architecture | None = None) -> str:
    """Return a drawing of the network as SVG; layers that are not in ``first`` are marked."""
    rows = {IMAGE: 0, **{id: number for number, id in enumerate(network.chain, start=1)}}
    height = _ROW_HEIGHT * len(rows) + 8
    parts = [
        _arcs(network, rows, first),
        _box(0, "image", network.input_shape, "#9aa3af", _MAX_WIDTH),
    ]
    widest = max(network.shapes[id][0] for id in network.chain)
    for id in network.chain:
        layer = network.layer[id]
        shape = network.shapes[id]
        width = _MIN_WIDTH + (_MAX_WIDTH - _MIN_WIDTH) * log2(1 + shape[0]) / log2(1 + widest)
        parts.append(_box(rows[id], _layer_text(layer), shape, _colour(layer), width))
        if first is not None and _is_new(layer, first):
            parts.append(_mark(rows[id]))
    title = f"{len(network.layers)} layers, {network.parameters:,} parameters"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img" {_FONT}><title>{title}</title>'
        f"{''.join(parts)}</svg>"
    )


def _layer_text(layer: Layer) -> str:
    """Return a layer as text, such as ``3×3 conv, 64, stride 2``."""
    stride = f", stride {layer.stride}" if layer.stride > 1 else ""
    if layer.kind == "conv":
        return f"{layer.kernel}×{layer.kernel} conv, {layer.filters}{stride}"
    if layer.kind == "max-pool":
        return f"{layer.kernel}×{layer.kernel} max-pool{stride}"
    return {"add": "+", "concat": "concat"}.get(layer.kind, layer.kind)


def _colour(layer: Layer) -> str:
    if layer.kind == "conv":
        return _KERNEL_COLOURS.get(layer.kernel, _COLOURS["conv"])
    return _COLOURS[layer.kind]


def _box(row: int, text: str, shape: tuple[int, ...], colour: str, width: float) -> str:
    top, size = row * _ROW_HEIGHT + 4, "×".join(map(str, shape))
    middle = top + _BOX_HEIGHT / 2 + 4
    return (
        f'<rect x="{_CENTRE - width / 2:.1f}" y="{top}" width="{width:.1f}" height="{_BOX_HEIGHT}" '
        f'rx="4" fill="{colour}"/>'
        f'<text x="{_CENTRE}" y="{middle}" text-anchor="middle" fill="#fff">{escape(text)}</text>'
        f'<text x="{_SHAPE_X}" y="{middle}" fill="currentColor" opacity="0.65">{size}</text>'
    )


def _mark(row: int) -> str:
    """Return a dot beside a layer that the search added or changed."""
    x, y = _SHAPE_X - 14, row * _ROW_HEIGHT + 4 + _BOX_HEIGHT / 2
    return f'<circle cx="{x}" cy="{y}" r="4" fill="{ACHIEVED}"><title>new</title></circle>'


def _is_new(layer: Layer, first: Architecture) -> bool:
    original = first.layer.get(layer.id)
    if original is None:
        return True
    return layer.model_copy(update={"inputs": original.inputs}) != original


def _arcs(network: Architecture, rows: dict[int, int], first: Architecture | None) -> str:
    """Return one arc per skip connection, wider for longer ones."""
    arcs = []
    for id in network.chain:
        merge = network.layer[id]
        for source in merge.inputs[1:] if merge.kind in MERGES else ():
            connection = [merge, *_off_chain(network, source, rows)]
            start = rows[connection[-1].inputs[0]] if len(connection) > 1 else rows[source]
            through = (
                ", ".join(_layer_text(layer) for layer in reversed(connection[1:])) or "identity"
            )
            is_known = first is not None and source in (
                first.layer[id].inputs if id in first.layer else ()
            )
            colour = "#2e8b3d" if first is None or is_known else ACHIEVED
            arcs.append(_arc(start, rows[id], colour, through, dashed=len(connection) > 1))
    return "".join(arcs)


def _off_chain(network: Architecture, source: int, rows: dict[int, int]) -> list[Layer]:
    """Return the layers of a skip connection, from the merge back to the chain."""
    layers: list[Layer] = []
    while source not in rows:
        layers.append(network.layer[source])
        source = network.layer[source].inputs[0]
    return layers


def _arc(start: int, end: int, colour: str, through: str, *, dashed: bool) -> str:
    x = _CENTRE - _MAX_WIDTH / 2 - 6
    top, bottom = (row * _ROW_HEIGHT + 4 + _BOX_HEIGHT / 2 for row in (start, end))
    reach = min(30 + 16 * (end - start) ** 0.9, x - 8)
    dash = ' stroke-dasharray="5 3"' if dashed else ""
    return (
        f'<path d="M{x} {top} C{x - reach:.1f} {top} {x - reach:.1f} {bottom} {x} {bottom}" '
        f'fill="none" stroke="{colour}" stroke-width="1.8"{dash}>'
        f"<title>{escape(through)}</title></path>"
    )
