"""Utilisation, memory and bandwidth of points: the table, the charts, and what is missing."""

from __future__ import annotations

from typing import Any

from tests.support.scale_points import point, scale, used, values
from vflops.results.score.node_usage import Course
from vflops.studies.scale.axis import axis_of
from vflops.studies.scale.scale_result import Scale, Variant
from vflops.studies.scale.usage_view import usage_note

ON_GPU = {"utilisation": 95.0, "memory_b": 8e9, "processors": 12.0, "run_memory_b": 3e9}
ON_CPU = {"processors": 88.0, "run_memory_b": 2e9}
NO_GPU = {"utilisation": "no accelerator", "memory_b": "no accelerator"}


def usage_table(shown: Scale) -> list[Any]:
    return axis_of(shown.kind).usage_table(shown)


def curves(shown: Scale) -> dict[str, Any]:
    return {curve.id: curve for curve in axis_of(shown.kind).curves(shown)}


def test_accelerators_of_all_hosts_are_shown_by_scale() -> None:
    traffic = {"within_b_per_s": 2e9, "between_b_per_s": 5e6}
    shown = scale(
        used(1, accelerators=1, **ON_GPU),
        used(4, sent=1e6, accelerators=4, **ON_GPU, **traffic),
    )
    names, one, four = usage_table(shown)
    assert names[1:4] == ("hosts", "GPU busy", "GPU memory")
    assert one == ("1 × 1", "1", "95 %", "8.00 GB", "—", "—", "—", "—")
    assert four[1:6] == ("4", "95 %", "8.00 GB", "2.00 GB/s", "5.00 MB/s")
    assert four[6:] == ("1.00 MB/s", "1.00 MB/s")
    drawn = curves(shown)
    assert values(drawn["bandwidth"].chart, "within nodes") == [(4, 2e9)]
    assert values(drawn["bandwidth"].chart, "between nodes") == [(4, 5e6)]
    assert values(drawn["bandwidth"].chart, "sent by the ranks") == [(4, 2e6)]
    assert drawn["utilisation"].title == "Accelerators over time"
    lines = {
        row["size"] for row in drawn["utilisation"].chart["datasets" if False else "data"]["values"]
    }
    assert lines == {"1 × 1", "4 × 1"}
    assert "memory" not in drawn  # no course of it


def test_one_size_has_bars_and_a_variant_has_all_of_its_traffic() -> None:
    alone = scale(used(1, within_b_per_s=2e9, between_b_per_s=5e6))
    bars = curves(alone)["bandwidth"].chart["layer"][0]
    rows = bars.get("data", curves(alone)["bandwidth"].chart.get("data"))["values"]
    assert {row["label"]: row["words"] for row in rows} == {
        "within nodes": "2.00 GB/s",
        "between nodes": "5.00 MB/s",
    }
    first = alone.points[0].model_copy(update={"variant": "original"})
    second = used(2, within_b_per_s=1e9).model_copy(update={"variant": "original"})
    plain = Variant(name="original", settings={})
    both = alone.model_copy(
        update={"kind": "optimisations", "points": (first, second), "variants": (plain,)}
    )
    axis = axis_of("optimisations", (plain,))
    (chart,) = (curve.chart for curve in axis.curves(both) if curve.id == "bandwidth")
    rows = chart["layer"][0].get("data", chart.get("data"))["values"]
    assert [(row["series"], row["value"]) for row in rows] == [("original", 2.005e9)]


def test_bagging_and_data_parallelism_have_a_bandwidth_each() -> None:
    traffic = {"within_b_per_s": 2e9, "between_b_per_s": 5e8}
    wide = used(1, within_b_per_s=6e9, between_b_per_s=1e9).model_copy(update={"ranks": 2})
    shown = scale(used(1, **traffic), used(2, **traffic), wide, kind="bagging-vs-data")
    chart = curves(shown)["bandwidth"].chart
    assert values(chart, "bagging, P = 1") == [(1, 2.5e9), (2, 2.5e9)]
    assert values(chart, "data parallel, M = 1") == [(1, 2.5e9), (2, 7e9)]


def test_without_an_accelerator_the_processors_are_shown_and_this_is_said() -> None:
    course = Course(name="processors", points=((0.5, 88.0), (1.5, 90.0)))
    shown = scale(used(1, **ON_CPU, missing=NO_GPU, courses=(course,)))
    assert usage_table(shown)[0][2:4] == ("CPU busy", "memory")
    assert usage_table(shown)[1][2:4] == ("88 %", "2.00 GB")
    assert usage_note(shown).startswith("No accelerator was used, so there is no GPU utilisation")
    assert curves(shown)["utilisation"].title.startswith("Processors (no accelerator was used)")
    assert axis_of("weak").remarks(shown) == []


def test_what_was_not_measured_is_said_with_the_reason() -> None:
    unsampled = dict.fromkeys(("within_b_per_s", "between_b_per_s"), "b: nothing was sampled")
    shown = scale(used(1, **ON_CPU), used(2, **ON_CPU, missing={**NO_GPU, **unsampled}))
    what = "traffic within nodes, traffic between nodes not measured: b: nothing was sampled"
    assert axis_of("weak").remarks(shown) == [("2 × 1", what)]
    both = scale(*(used(number, missing=unsampled) for number in (1, 2)))
    assert axis_of("weak").remarks(both) == [("all points", what)]


def test_points_of_older_versions_have_no_such_table() -> None:
    shown = scale(point(1, 1, 1e9))
    assert usage_table(shown) == []
    assert not {"utilisation", "memory", "bandwidth"} & {*curves(shown)}
