"""The papers' published figures and the exact integers of AIPerf's program."""

from __future__ import annotations

import pytest

from vflops.counting.capture import InputSpec, capture, cross_entropy
from vflops.counting.conventions import convention
from vflops.counting.count import Count, count
from vflops.models.resnet import resnet50, resnet50_v1
from vflops.record.formats.graph import Graph

IMAGE = [InputSpec((3, 224, 224))]


@pytest.fixture(scope="module")
def v1() -> Graph:
    return capture(resnet50_v1, IMAGE, name="resnet50-v1", loss=cross_entropy)


@pytest.fixture(scope="module")
def v15() -> Graph:
    return capture(resnet50, IMAGE, name="resnet50", loss=cross_entropy)


def by_kind(counted: Count) -> dict[str, tuple[int, int]]:
    """Return forward and, as in the paper, backward with update."""
    return {
        row.name: (row.ops.forward, row.ops.backward + row.ops.update)
        for row in counted.by_kind
        if row.ruled
    }


def test_aiperf_original_program_to_the_integer(v1: Graph) -> None:
    counted = count(v1, convention("aiperf-original"))
    assert by_kind(counted) == {
        "convolution": (7_711_850_496, 15_234_582_912),
        "dense": (4_096_000, 12_290_000),
        "normalization": (74_109_952, 1_908),
        "activation": (9_081_856, 0),
        "elementwise": (5_519_360, 0),
        "max-pool": (1_806_336, 0),
        "global-pool": (106_496, 0),
        "softmax": (12_999, 0),
    }
    assert counted.total.forward == 7_806_583_495
    assert counted.total.backward + counted.total.update == 15_246_874_820
    assert counted.total.total == 23_053_458_315
    assert {row.name: row.nodes for row in counted.by_kind} == {
        "convolution": 53,
        "normalization": 53,
        "activation": 49,
        "elementwise": 16,
        "max-pool": 1,
        "global-pool": 1,
        "dense": 1,
        "softmax": 1,
        "loss": 1,
    }


def test_aiperf_table_iii_follows_from_the_original_program(v1: Graph) -> None:
    counted = count(v1, convention("aiperf-original"))
    table_iii = {
        "convolution": (7.71e9, 1.52e10),
        "dense": (4.10e6, 1.23e7),
        "normalization": (7.41e7, 1.91e3),
        "activation": (9.08e6, 0),
        "max-pool": (1.81e6, 0),
        "elementwise": (5.52e6, 0),
    }
    for kind, printed in table_iii.items():
        assert tuple(float(f"{figure:.2e}") for figure in by_kind(counted)[kind]) == printed
    total = counted.total
    assert f"{total.forward:.2e} {total.total:.2e}" == "7.81e+09 2.31e+10"
    assert f"{(total.backward + total.update) / total.forward:.4f}" == "1.9531"


def test_two_cells_of_table_iii_follow_from_no_reading(v1: Graph) -> None:
    readings = [by_kind(count(v1, convention(name))) for name in ("aiperf", "aiperf-original")]
    assert {reading["global-pool"][0] for reading in readings} == {108_544, 106_496}  # not 1.00e5
    assert {reading["softmax"][0] for reading in readings} == {13_000, 12_999}  # not 2.10e4


def test_aiperf_as_printed(v1: Graph) -> None:
    total = count(v1, convention("aiperf")).total
    assert total.backward + total.update == 15_482_900_816
    assert f"{total.total:.2e}" == "2.33e+10"


def test_aiperf_table_vii_per_epoch(v1: Graph) -> None:
    total = count(v1, convention("aiperf-original")).total
    train, validation = 1_281_167, 50_000
    assert f"{total.forward * train:.2e}" == "1.00e+16"
    assert f"{(total.backward + total.update) * train:.2e}" == "1.95e+16"
    assert f"{total.forward * validation:.2e}" == "3.90e+14"
    assert f"{total.total * train + total.forward * validation:.2e}" == "2.99e+16"


def test_hpcai500_table_3(v1: Graph, v15: Graph) -> None:
    first, second = (count(graph, convention("hpcai500")).total for graph in (v1, v15))
    assert (first.forward, second.forward) == (7_739_990_016, 8_203_465_728)
    assert second.backward == 2 * second.forward
    assert second.update == 0


def test_hpcai500_fully_connected_with_and_without_the_factor_2(v15: Graph) -> None:
    printed, corrected = (by_kind(count(v15, convention(n))) for n in ("hpcai500", "hpcai500-fc2"))
    assert printed.pop("dense") == (2048 * 1000, 2 * 2048 * 1000)
    assert corrected.pop("dense") == (2 * 2048 * 1000, 4 * 2048 * 1000)
    assert printed == corrected


def test_parameters_of_resnet50(v1: Graph, v15: Graph) -> None:
    assert v1.parameter_count == v15.parameter_count == 25_557_032


@pytest.mark.parametrize(
    "rules", ["aiperf", "aiperf-original", "hpcai500", "hpcai500-fc2", "executed"]
)
def test_a_batch_costs_its_samples(v15: Graph, rules: str) -> None:
    batch = capture(resnet50, IMAGE, name="resnet50", batch=7, loss=cross_entropy)
    one, seven = (count(graph, convention(rules)).total for graph in (v15, batch))
    assert seven.forward == 7 * one.forward
    assert seven.backward == 7 * one.backward
    assert seven.update == 7 * one.update
