"""A small roofline as SVG, which needs no script: the ceilings, and what training achieved."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10

from markupsafe import escape

from vflops.publish.pages.label_layout import powers_of_ten
from vflops.publish.pages.roofline_points import Achieved
from vflops.results.roofline.analysis import COMPUTE, Ceilings
from vflops.units import percent, quantity

_WIDTH, _HEIGHT = 380, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 10, 16, 34
_STAR = "M0 -7L2 -2.8 6.7 -2.2 3.3 1 4.1 5.7 0 3.5 -4.1 5.7 -3.3 1 -6.7 -2.2 -2 -2.8Z"
_MAX_TICKS, _LETTER = 4, 6.5
Range = tuple[float, float]


class _Plot:
    """Positions in the drawing of values on two logarithmic axes."""

    def __init__(self, x_range: Range, y_range: Range) -> None:
        self.x_range, self.y_range = x_range, y_range

    def x(self, intensity: float) -> float:
        return _LEFT + _share(intensity, self.x_range) * (_WIDTH - _LEFT - _RIGHT)

    def intensity(self, x: float) -> float:
        low, high = self.x_range
        return float(low * (high / low) ** ((x - _LEFT) / (_WIDTH - _LEFT - _RIGHT)))

    def y(self, flops: float) -> float:
        return _HEIGHT - _BOTTOM - _share(flops, self.y_range) * (_HEIGHT - _TOP - _BOTTOM)


def draw_small_roofline(
    machine: Ceilings, achieved: Sequence[tuple[str, str, Achieved]]
) -> str | None:
    """Return the drawing; None without a memory ceiling or without an achieved point.

    ``achieved`` holds the mark of each point, the precision of its training, and the point.
    """
    roofs = {
        precision: max(peaks)
        for _, precision, _ in achieved
        if (peaks := [machine.compute[key] for key in _keys(machine, precision)])
    }
    if not machine.memory or not roofs:
        return None
    plot = _plot(machine.memory, list(roofs.values()), [point for _, _, point in achieved])
    parts = [_axes(plot), _slope(plot, machine.memory, max(roofs.values()))]
    parts += [_roof(plot, machine.memory, name, peak) for name, peak in roofs.items()]
    parts += [_point(plot, mark, point) for mark, _, point in achieved]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'class="small-roofline"><title>{escape(_description(achieved))}</title>'
        f"{''.join(parts)}</svg>"
    )


def _keys(machine: Ceilings, precision: str) -> list[tuple[str, str]]:
    return [key for key in ((name, precision) for name in COMPUTE) if key in machine.compute]


def _plot(memory: float, peaks: Sequence[float], points: Sequence[Achieved]) -> _Plot:
    intensities = [point.intensity for point in points] + [peak / memory for peak in peaks]
    flops = [value for point in points for value in (point.flops, point.most) if value > 0]
    return _Plot(
        (min(intensities) / 4, max(intensities) * 4), (min(flops) / 3, 2 * max([*peaks, *flops]))
    )


def _share(value: float, over: Range) -> float:
    return log10(value / over[0]) / log10(over[1] / over[0])


def _axes(plot: _Plot) -> str:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = [f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>']
    for tick in _ticks(plot.x_range):
        parts.append(_text(plot.x(tick), bottom + 13, f"{tick:g}", "middle"))
    for tick in _ticks(plot.y_range):
        parts.append(_text(_LEFT - 5, plot.y(tick) + 4, quantity(tick, "", digits=1), "end"))
    parts.append(_text((_LEFT + right) / 2, _HEIGHT - 5, "operations per byte", "middle"))
    parts.append(_text(2, 11, "FLOPS", "start"))
    return "".join(parts)


def _ticks(over: Range) -> list[float]:
    ticks = powers_of_ten(*over)
    return ticks[:: -(-len(ticks) // _MAX_TICKS)]


def _slope(plot: _Plot, memory: float, top: float) -> str:
    low = max(plot.x_range[0], plot.y_range[0] / memory)
    high = top / memory
    line = (
        f'<path class="roof memory" d="M{plot.x(low):.1f} {plot.y(low * memory):.1f}'
        f'L{plot.x(high):.1f} {plot.y(top):.1f}"/>'
    )
    label = f"memory {quantity(memory, 'B/s')}"
    # Above the line over the whole width of the label, and above a circle on the line.
    right_end = plot.intensity(plot.x(low) + 8 + _LETTER * len(label))
    height = max(plot.y(min(right_end * memory, top)) - 9, _TOP + 8)
    return line + _text(plot.x(low) + 4, height, label, "start")


def _roof(plot: _Plot, memory: float, precision: str, peak: float) -> str:
    left, right, height = plot.x(peak / memory), _WIDTH - _RIGHT, plot.y(peak)
    return f'<path class="roof" d="M{left:.1f} {height:.1f}H{right}"/>' + _text(
        right, height - 4, f"{precision} {quantity(peak, 'FLOPS')}", "end"
    )


def _point(plot: _Plot, mark: str, point: Achieved) -> str:
    x, reached, most = plot.x(point.intensity), plot.y(point.flops), plot.y(point.most)
    return (
        f'<path class="distance" d="M{x:.1f} {reached:.1f}V{most:.1f}"/>'
        f'<circle class="most" cx="{x:.1f}" cy="{most:.1f}" r="4"/>'
        f'<path class="star" transform="translate({x:.1f} {reached:.1f})" d="{_STAR}"/>'
        + (_text(x + 10, reached + 4, mark, "start", name="mark-of") if mark else "")
    )


def _text(x: float, y: float, text: str, anchor: str, *, name: str = "") -> str:
    kind = f' class="{name}"' if name else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(text)}</text>'


def _description(achieved: Sequence[tuple[str, str, Achieved]]) -> str:
    texts = [
        f"{point.name} achieved {quantity(point.flops, 'FLOPS')}, "
        f"{percent(point.flops / point.most)} of the {quantity(point.most, 'FLOPS')} "
        f"that the {precision} ceilings allow"
        for _, precision, point in achieved
    ]
    return f"Roofline: {'; '.join(texts)}"
