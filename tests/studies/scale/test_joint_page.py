"""One experiment with several workloads: their kernels, efficiencies and bandwidths together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.scale_points import point, scale, used, values
from vflops.record.formats.job_events import KernelTime
from vflops.results.score.node_usage import Course
from vflops.studies.scale.axis import Axis, axis_of
from vflops.studies.scale.joint_page import joint_curves, write_joint_page
from vflops.studies.scale.kernel_shares import kernel_chart, kinds_of
from vflops.studies.scale.scale_result import Point, Scale

WEATHER = "extreme-weather"


def profiled(ranks: int, **shares: float) -> Point:
    """A point whose steps were profiled, with these shares."""
    plain = point(1, ranks, 1e9)
    assert plain.figures
    kernels = tuple(
        KernelTime(kind=kind.replace("_", " "), time_s=share, share=share, calls=1)
        for kind, share in shares.items()
    )
    return plain.model_copy(
        update={"figures": plain.figures.model_copy(update={"kernels": kernels})}
    )


def of(workload: str, found: Scale) -> tuple[Scale, Axis]:
    return found.model_copy(update={"workload": workload}), axis_of(found.kind)


@pytest.fixture
def kernels() -> list[tuple[Scale, Axis]]:
    images = scale(
        profiled(1, convolution=0.7, other=0.3),
        profiled(2, convolution=0.5, communication=0.2, other=0.3),
        kind="kernels",
    )
    weather = scale(profiled(1, matrix_product=0.9996, copy=0.0004), kind="kernels")
    return [of("image-classification", images), of(WEATHER, weather)]


def test_kernels_of_both_workloads_are_side_by_side(kernels: list[tuple[Scale, Axis]]) -> None:
    scales = [found for found, _ in kernels]
    assert kinds_of(scales) == ["convolution", "matrix product", "communication", "other"]
    chart = kernel_chart(scales)
    assert chart
    rows = chart["layer"][0].get("data", chart.get("data"))["values"]
    shares = {(row["bar"], row["kind"]): (row["start"], row["end"]) for row in rows}
    assert shares[("image-classification, P = 2", "communication")] == (0.5, 0.7)
    assert shares[(f"{WEATHER}, P = 1", "matrix product")] == (0, 0.9996)
    assert len(shares) == 6  # the copy is shown as 0.0 %, so it has no bar
    assert joint_curves(kernels)[0].id == "kernels"


def test_a_table_has_a_row_per_kind_of_kernel(kernels: list[tuple[Scale, Axis]]) -> None:
    found, axis = kernels[0]
    missing = Point(jobs=1, ranks=4, run=None, figures=None)
    more = found.model_copy(update={"points": (*found.points, missing)})
    assert axis.table(more) == [
        ("kernels", "P = 1", "P = 2", "P = 4"),
        ("convolution", "70.0 %", "50.0 %", "—"),
        ("communication", "0.0 %", "20.0 %", "—"),
        ("other", "30.0 %", "30.0 %", "—"),
    ]


def test_nothing_profiled_is_no_chart() -> None:
    assert kernel_chart([scale(point(1, 1, 1e9), kind="kernels")]) is None


def test_bandwidth_and_efficiency_of_both_workloads_share_a_chart() -> None:
    traffic: dict[str, Any] = {"within_b_per_s": 2e9, "between_b_per_s": 5e8}
    images = of("image-classification", scale(used(1, **traffic), used(2, **traffic)))
    weather = of(WEATHER, scale(used(1, within_b_per_s=3e9)))  # what is between nodes is unknown
    curves = {curve.id: curve.chart for curve in joint_curves([images, weather])}
    assert values(curves["bandwidth"], "image-classification") == [(1, 2.5e9), (2, 2.5e9)]
    assert values(curves["bandwidth"], WEATHER) == []
    assert values(curves["efficiency"], WEATHER) == [(1, 1)]


def test_series_of_one_workload_are_named_after_it() -> None:
    points = point(1, 2, 1e9), point(2, 2, 2e9), point(1, 4, 1e9)
    found = of(WEATHER, scale(*points, kind="bagging-vs-data"))
    curves = {curve.id: curve.chart for curve in joint_curves([found])}
    assert list(curves) == ["flops", "vflops", "efficiency"]  # the quality factors are not known
    bagging, data = f"{WEATHER}: bagging, P = 2", f"{WEATHER}: data parallel, M = 1"
    assert values(curves["efficiency"], bagging) == [(2, 1), (4, 1)]
    assert values(curves["efficiency"], data) == [(2, 1), (4, 0.5)]
    assert values(curves["flops"], bagging) == [(2, 1e9), (4, 2e9)]
    assert values(curves["vflops"], bagging) == [(2, 0.5e9), (4, 1e9)]


def test_the_largest_point_of_each_workload_is_shown_over_time() -> None:
    def busy(models: int, percent: float) -> Point:
        course = Course(name="processors", points=((0.5, percent), (1.5, percent)))
        return used(models, courses=(course,))

    found = of(WEATHER, scale(busy(1, 10.0), busy(4, 40.0), busy(2, 20.0)))
    (curve,) = (curve for curve in joint_curves([found]) if curve.id == "utilisation")
    rows = [
        row for layer in curve.chart["layer"] for row in layer.get("data", {}).get("values", ())
    ]
    rows = rows or curve.chart["data"]["values"]
    assert {(row["size"], row["value"]) for row in rows} == {(f"{WEATHER}, 4 × 1", 40.0)}


def test_the_page_links_to_the_page_of_each_workload(
    kernels: list[tuple[Scale, Axis]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vflops.studies.scale.joint_page.chart_library", str)
    write_joint_page(kernels, tmp_path / "scale.html")
    page = (tmp_path / "scale.html").read_text()
    assert f'href="{WEATHER}/scale.html"' in page
    assert "the page of each one draws figure 2 of HPC AI500 V2.0" in page
    assert "<td>convolution</td>" in page


def test_the_page_repeats_what_limits_the_figures_of_each_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vflops.studies.scale.joint_page.chart_library", str)
    shown = used(1, missing={"between_b_per_s": "a: no network interface"})
    assert shown.figures
    broken = shown.figures.model_copy(update={"checks_failed": 1})
    found = of(WEATHER, scale(shown.model_copy(update={"figures": broken})))
    write_joint_page([found, of("image-classification", scale(point(1, 1, 1e9)))], tmp_path / "e")
    page = (tmp_path / "e").read_text()
    assert page.count("not every rule is met") == 1
    assert f"<code>{WEATHER}/1x1/run/report.html</code>" in page
    assert "traffic between nodes not measured: a: no network interface" in page
    assert page.count("profile tiny") == 2
    assert page.count("1 core per rank at every point") == 2
    threads = {"cores_per_rank": 2, "threads_per_rank": 1}  # as with OMP_NUM_THREADS=1
    write_joint_page([of(WEATHER, found[0].model_copy(update=threads))], tmp_path / "f")
    assert "2 cores and 1 thread per rank at every point" in (tmp_path / "f").read_text()
    assert page.count("Points took only seconds") == 2
