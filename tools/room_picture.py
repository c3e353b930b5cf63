"""The rooms as a picture: boxes in the order of imports, and an arc for each import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

_ROW, _BOX_HEIGHT, _BOX_WIDTH, _LEFT = 36, 26, 170, 150
_WIDTH = 800
_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #222; }
  .name { font-weight: 600; text-anchor: middle; }
  .note { fill: #555; }
  rect.box { fill: #eef3f9; stroke: #2f6fb0; }
  rect.torch { fill: #f9efe2; stroke: #c77d11; }
  path { fill: none; stroke: #8a94a2; stroke-width: 1.3; marker-end: url(#arrow); }
"""


def reduced(imports: Mapping[str, set[str]], order: Sequence[str]) -> dict[str, list[str]]:
    """Return the imports of each entry without those that follow from others."""
    reach: dict[str, set[str]] = {}
    for entry in reversed(order):
        reach[entry] = imports[entry].union(*(reach[target] for target in imports[entry]))
    kept: dict[str, list[str]] = {}
    for entry in order:
        implied = set[str]().union(*(reach[target] for target in imports[entry]))
        kept[entry] = sorted(imports[entry] - implied, key=order.index)
    return kept


def svg(
    order: Sequence[str],
    imports: Mapping[str, set[str]],
    notes: Mapping[str, str],
    with_torch: Iterable[str],
) -> str:
    """Return the picture; ``with_torch`` names the entries that import torch at once."""
    height = _ROW * len(order) + 44
    torch = set(with_torch)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="arrow" markerWidth="8" markerHeight="8" refX="6" refY="3" '
        'orient="auto"><path d="M0,0 L6,3 L0,6 z" '
        'style="fill:#8a94a2;stroke:none;marker-end:none"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    for entry, targets in reduced(imports, order).items():
        lines += [_arc(order.index(entry), order.index(target)) for target in targets]
    for row, entry in enumerate(order):
        top = _top(row)
        kind = "box torch" if entry in torch else "box"
        lines.append(
            f'<rect class="{kind}" x="{_LEFT}" y="{top}" width="{_BOX_WIDTH}" '
            f'height="{_BOX_HEIGHT}" rx="5"/>'
            f'<text class="name" x="{_LEFT + _BOX_WIDTH // 2}" y="{top + 18}">'
            f"{escape(entry)}</text>"
            f'<text class="note" x="{_LEFT + _BOX_WIDTH + 14}" y="{top + 18}">'
            f"{escape(notes[entry])}</text>"
        )
    legend = (
        "orange: imports torch · an arrow means “imports”; arrows that others imply are omitted"
    )
    lines.append(f'<text class="note" x="{_LEFT}" y="{height - 12}">{legend}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _top(row: int) -> int:
    return 10 + _ROW * row


def _arc(start: int, end: int) -> str:
    if end == start + 1:
        middle = _LEFT + _BOX_WIDTH // 2
        return f'<path d="M{middle},{_top(start) + _BOX_HEIGHT} L{middle},{_top(end) - 1}"/>'
    first, last = (_top(row) + _BOX_HEIGHT // 2 for row in (start, end))
    bend = max(_LEFT - 30 * (end - start), 6)
    return f'<path d="M{_LEFT},{first} C{bend},{first} {bend},{last} {_LEFT - 2},{last}"/>'
