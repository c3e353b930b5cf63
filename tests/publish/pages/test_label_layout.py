"""Labels of the roofline: none on another, none outside of the plot, ticks that do not crowd."""

from __future__ import annotations

from typing import Any

import pytest

from vflops.publish.pages import roofline_chart
from vflops.publish.pages.label_layout import Box, LabelLayout, powers_of_ten
from vflops.publish.pages.roofline_chart import HEIGHT, WIDTH
from vflops.publish.pages.roofline_points import NARROW, WIDE, Achieved
from vflops.results.roofline.analysis import Bound, Ceilings, Point

GIGA, KILO = 1e9, 1e3


def places() -> LabelLayout:
    return LabelLayout((1.0, 100.0), (1.0, 100.0), (400, 200))


def test_a_pixel_is_where_the_axes_draw_a_value() -> None:
    assert places().pixel(10.0, 1.0) == pytest.approx((200, 0))
    assert places().value(*places().pixel(3.0, 70.0)) == pytest.approx((3.0, 70.0))


def test_labels_of_one_point_do_not_meet_and_stay_inside() -> None:
    found = places()
    for number in range(30):
        found.place_label(10.0, 10.0, f"label {number}", 11)
    boxes = found.occupied
    assert 5 < len(boxes) < 30  # what finds no place has none
    assert not any(one.overlaps(two) for n, one in enumerate(boxes) for two in boxes[:n])
    assert all(box.left >= 0 and box.right <= 400 for box in boxes)


def test_a_label_at_the_right_edge_goes_to_the_left_of_its_point() -> None:
    place = places().place_label(95.0, 10.0, "achieved 5.55 GFLOPS", 12)
    assert place is not None and place[0] < 95.0


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0.2, 300, [1, 10, 100]), (2e9, 8e9, [2e9, 5e9]), (0.05, 2, [0.1, 1])],
)
def test_ticks_are_powers_of_ten_unless_they_are_too_few(
    low: float, high: float, ticks: list[float]
) -> None:
    assert powers_of_ten(low, high) == pytest.approx(ticks)


def point(kind: str, ops: float, moved: float) -> Point:
    compute_s, memory_s = ops / (58 * GIGA), moved / (8 * GIGA)
    waiting_s = memory_s if memory_s > compute_s else 0.0
    longest_s = max(compute_s, memory_s)
    return Point(kind, int(ops), int(moved), compute_s, memory_s, longest_s, waiting_s)


def suite_chart() -> dict[str, Any]:
    """Two models with points and figures close to each other, under ceilings that are too."""
    compute = {("gemm", "fp32"): 61.0, ("convolution", "fp32"): 58.5, ("gemm", "fp8"): 5.2}
    machine = Ceilings(
        compute={name: GIGA * value for name, value in compute.items()},
        memory=8 * GIGA,
        network=GIGA,
        ranks=2,
        network_case="gloo-2-ranks",
    )
    kinds = [("convolution", 6e9, 3e8), ("normalisation", 5e7, 8e7), ("element-wise", 2e7, 6e7)]
    points = tuple(point(*each) for each in [*kinds, ("pooling", 1e7, 2.5e7)])
    bounds = [
        Bound(model, 32, "fp32", "hpcai500", points, 7.3, 4_000_000, 0.01, 2)
        for model in ("image-classification", "extreme-weather")
    ]
    reached = [Achieved(bound.model, 13.0, 5.5 * GIGA, bound.attainable) for bound in bounds]
    return roofline_chart.roofline(machine, bounds, reached)


def _leaves(chart: dict[str, Any], data: dict[str, Any]) -> list[dict[str, Any]]:
    """Every layer that draws, with the data that it may have from the one around it."""
    data = chart.get("data", data)
    if "layer" not in chart:
        return [{**chart, "data": data}]
    return [leaf for layer in chart["layer"] for leaf in _leaves(layer, data)]


def gpu_chart() -> dict[str, Any]:
    """Pairs of ceilings that nearly meet, and a star beside the slope of the network."""
    products = {"fp64": 61, "fp32": 52, "tf32": 420, "bf16": 760, "fp16": 745, "fp8": 1350}
    convolutions = {"fp64": 9, "fp32": 48, "tf32": 300, "bf16": 580, "fp16": 575}
    compute = {("gemm", name): KILO * GIGA * value for name, value in products.items()}
    compute |= {("convolution", name): KILO * GIGA * value for name, value in convolutions.items()}
    machine = Ceilings(compute, 4.1 * KILO * GIGA, 0.4 * KILO * GIGA, 8, "nccl-8-ranks")
    reached = [Achieved("image-classification", 13.0, 22 * KILO * GIGA, 53 * KILO * GIGA)]
    return roofline_chart.roofline(machine, [], reached)


def shown_labels(
    chart: dict[str, Any], room: str = WIDE, width: int = WIDTH
) -> list[tuple[str, Box]]:
    """The texts of a chart and their boxes, as the specification places them."""
    layers = _leaves(chart, {})
    found: list[tuple[str, Box]] = []
    axes: Any = None
    for layer in layers:
        encoding = layer.get("encoding", {})
        if "domain" in encoding.get("x", {}).get("scale", {}) and axes is None:
            axes = encoding["x"]["scale"]["domain"], encoding["y"]["scale"]["domain"]
        mark, filters = layer.get("mark", {}), layer.get("transform", [])
        if mark.get("type") != "text" or "stroke" in mark or filters != [{"filter": room}]:
            continue
        plot = LabelLayout(axes[0], axes[1], (width, HEIGHT))
        field = encoding["text"]["field"]
        for row in layer["data"]["values"]:
            across, up = plot.pixel(row[encoding["x"]["field"]], row[encoding["y"]["field"]])
            wide = 5.5 * len(row[field])
            left = across - wide if mark["align"] == "right" else across
            base = up if mark.get("baseline") == "bottom" else up - 5
            found.append((row[field], Box(left, base, left + wide, base + 10)))
    return found


def test_the_labels_of_a_suite_neither_meet_nor_leave_the_plot() -> None:
    found = shown_labels(suite_chart())
    names = [label for label, _ in found]
    assert "extreme-weather: achieved 5.50 GFLOPS" in names
    assert "fp32 convolution 58.5 GFLOPS" in names
    assert "extreme-weather convolution" in names
    assert not any("pooling" in name for name in names)  # one of many that take little time
    for number, (label, box) in enumerate(found):
        assert box.left >= 0 and box.right <= WIDTH, label
        for other, taken in found[:number]:
            assert not box.overlaps(taken), (label, other)


@pytest.mark.parametrize(("room", "width"), [(WIDE, WIDTH), (NARROW, 280)])
def test_no_label_of_a_gpu_is_struck_through_or_covers_the_star(room: str, width: int) -> None:
    chart = gpu_chart()
    found = shown_labels(chart, room, width)
    axes = next(
        layer for layer in _leaves(chart, {}) if "domain" in layer["encoding"]["x"]["scale"]
    )
    scales = [axes["encoding"][axis]["scale"]["domain"] for axis in "xy"]
    plot = LabelLayout(scales[0], scales[1], (width, HEIGHT))
    rows = [row for layer in _leaves(chart, {}) for row in layer["data"]["values"]]
    roofs = {row["flops"] for row in rows if "benchmark" in row}
    star = plot.pixel(13.0, 22 * KILO * GIGA)
    assert len(roofs) == 11 and len(found) >= 10
    assert {label.split()[0] for label, _ in found} >= {"fp64", "fp32", "tf32", "fp8"}
    for number, (label, box) in enumerate(found):
        lines = [plot.pixel(1, flops)[1] for flops in roofs]
        assert not any(box.bottom < line < box.top for line in lines), label
        assert not any(box.overlaps(other) for _, other in found[:number]), label
        assert not box.overlaps(Box(star[0] - 6, star[1] - 6, star[0] + 6, star[1] + 6)), label
