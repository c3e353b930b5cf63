"""The roofline's arithmetic on a machine and a model small enough to do by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.language_models import BATCH, GPT2, LENGTH, language_graph
from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.record.formats.measurement import Measurement
from vflops.results.roofline.analysis import Bound, Ceilings, bound, measured_ceilings
from vflops.results.roofline.bytes_moved import backward_bytes, forward_bytes, inner_values
from vflops.results.roofline.roofline_text import PARTS, part_rows, sentences
from vflops.results.score.scoring import best_bound
from vflops.testing.conventions import sample_graph

PEAK, BANDWIDTH = 1e9, 1e8
MACHINE = Ceilings(
    compute={("gemm", "fp32"): PEAK, ("convolution", "fp32"): PEAK / 2},
    memory=BANDWIDTH,
    network=1e6,
    ranks=2,
)


def sample_bound(machine: Ceilings = MACHINE, batch: int = 1) -> Bound:
    return bound(count(sample_graph(batch), convention("hpcai500")), machine, "fp32")


def test_bytes_of_a_convolution_by_hand() -> None:
    graph = sample_graph()
    image, weight, result = 3 * 4 * 4, 8 * 3 * 9, 8 * 4 * 4
    assert forward_bytes(graph, graph.nodes[0], "fp32") == 4 * (image + weight + result)
    # the image needs no gradient: only the weight gradient is made
    assert backward_bytes(graph, 0, "fp32") == 4 * (image + weight + result)
    assert forward_bytes(graph, graph.nodes[0], "bf16") == 2 * (image + weight + result)


def test_bytes_of_a_dense_layer_with_both_gradients() -> None:
    graph = sample_graph()
    once = 128 + 128 * 10 + 10
    assert forward_bytes(graph, graph.nodes[4], "fp32") == 4 * once
    assert backward_bytes(graph, 4, "fp32") == 2 * 4 * once


def test_a_view_moves_nothing() -> None:
    graph = sample_graph()
    assert forward_bytes(graph, graph.nodes[3], "fp32") == 0
    assert backward_bytes(graph, 3, "fp32") == 0


def test_least_time_of_each_kind_is_the_larger_of_compute_and_memory() -> None:
    points = {point.group: point for point in sample_bound().points}
    convolution = points["convolution"]
    forward = 2 * 9 * 3 * 16 * 8
    assert convolution.ops == 3 * forward
    assert convolution.compute_s == pytest.approx(3 * forward / (PEAK / 2))
    assert convolution.memory_s == pytest.approx(convolution.bytes_moved / BANDWIDTH)
    assert convolution.bound_by == "compute"
    relu = points["activation"]
    assert relu.bound_by == "memory"
    assert relu.bound_s == relu.waiting_s == pytest.approx(relu.bytes_moved / BANDWIDTH)
    graph = sample_graph()  # its forward pass waits for memory, its backward pass computes
    waiting = forward_bytes(graph, graph.nodes[0], "fp32") / BANDWIDTH
    assert convolution.waiting_s == pytest.approx(waiting)


@given(peak=st.floats(1e6, 1e18), bandwidth=st.floats(1e6, 1e15), batch=st.integers(1, 64))
def test_no_point_is_above_its_roofs(peak: float, bandwidth: float, batch: int) -> None:
    machine = Ceilings(
        {("gemm", "fp32"): peak, ("convolution", "fp32"): peak}, bandwidth, None, None
    )
    found = sample_bound(machine, batch)
    for point in found.points:
        assert point.attainable <= peak * (1 + 1e-9)
        assert point.attainable <= point.intensity * bandwidth * (1 + 1e-9)
    assert found.attainable <= peak * (1 + 1e-9)
    assert 0 <= found.waiting_share <= 1 + 1e-9
    assert found.bound_share >= 0.5 - 1e-9


def test_a_larger_batch_raises_the_intensity_of_weights() -> None:
    one, many = (
        {point.group: point.intensity for point in sample_bound(batch=batch).points}
        for batch in (1, 64)
    )
    assert many["dense"] > 5 * one["dense"]
    assert many["activation"] == pytest.approx(one["activation"])


def test_gradients_on_the_network_by_hand() -> None:
    found = sample_bound()
    parameters = 216 + 8 + 1280
    assert found.gradient_bytes == 4 * parameters
    assert found.network_s == pytest.approx(2 * (2 - 1) / 2 * 4 * parameters / 1e6)


def _ceiling(
    benchmark: str, precision: str | None, value: float | None, **more: object
) -> Measurement:
    return Measurement.model_validate(
        {
            "benchmark": benchmark,
            "case": str(more.pop("case", "x")),
            "precision": precision,
            "device": "cpu",
            "unit": "FLOPS" if precision else "B/s",
            "value": value,
            "reason": None if value else "absent",
            **more,
        }
    )


def test_roofs_take_the_best_and_leave_out_what_is_absent() -> None:
    machine = measured_ceilings(
        [
            _ceiling("gemm", "fp32", 5.0),
            _ceiling("gemm", "bf16", None),
            _ceiling("convolution", "fp32", 3.0, case="forward"),
            _ceiling("convolution", "fp32", 4.0, case="weight-gradient"),
            _ceiling("convolution", "bf16", 9.0),
            _ceiling("memory", None, 2.0, case="copy"),
            _ceiling("memory", None, 1.0, case="triad"),
        ]
    )
    assert machine.compute == {
        ("gemm", "fp32"): 5.0,
        ("convolution", "fp32"): 4.0,
        ("convolution", "bf16"): 9.0,
    }
    assert machine.memory == 2.0
    assert machine.network is None
    assert machine.precisions() == ["fp32"]  # bf16 has no matrix product


def test_the_words_name_the_bound_and_by_how_much() -> None:
    text = " ".join(sentences(sample_bound()))
    assert "90 % of that is bound by memory" in text
    assert "times above the ridge of 5.0: bound by compute" in text
    assert "data parallelism over such a link is bound by it below batch 23" in text


def test_the_bound_is_that_of_the_fastest_precision() -> None:
    compute = {
        (benchmark, precision): peak
        for benchmark in ("gemm", "convolution")
        for precision, peak in (("fp32", 1e9), ("bf16", 8e9), ("fp64", 5e8))
    }
    machine = Ceilings(compute, memory=BANDWIDTH, network=None, ranks=None)
    found, reason = best_bound(count(sample_graph(), convention("hpcai500")), machine)
    assert reason is None
    assert found is not None
    assert found.precision == "bf16"


def test_without_memory_or_convolution_there_is_no_bound_but_a_reason() -> None:
    counted = count(sample_graph(), convention("hpcai500"))
    no_memory = Ceilings(MACHINE.compute, memory=None, network=None, ranks=None)
    assert best_bound(counted, no_memory) == (None, "the memory bandwidth was not measured")
    no_peak = Ceilings({("gemm", "fp32"): 1e9}, memory=1e8, network=None, ranks=None)
    assert best_bound(counted, no_peak)[0] is None


def test_a_model_without_convolutions_needs_the_matrix_product_alone() -> None:
    counted = count(language_graph(GPT2), convention("executed"))
    compute = {("gemm", "fp8"): 4e9, ("gemm", "bf16"): 2e9, ("convolution", "bf16"): 1e9}
    machine = Ceilings(compute, memory=BANDWIDTH, network=None, ranks=None)
    assert machine.precisions(counted.graph) == ["fp8", "bf16"]
    found, reason = best_bound(counted, machine)
    assert found is not None and (found.precision, reason) == ("fp8", None)
    assert found.ridge == 4e9 / BANDWIDTH
    no_product = Ceilings({("convolution", "bf16"): 1e9}, BANDWIDTH, network=None, ranks=None)
    assert best_bound(counted, no_product) == (None, "the matrix product was not measured")


def test_a_model_with_convolutions_needs_both() -> None:
    compute = {("gemm", "fp8"): 4e9, ("gemm", "bf16"): 2e9, ("convolution", "bf16"): 1e9}
    machine = Ceilings(compute, memory=BANDWIDTH, network=None, ranks=None)
    assert machine.precisions(sample_graph()) == machine.precisions() == ["bf16"]


def test_an_all_reduce_of_cpu_processes_says_nothing_of_accelerators() -> None:
    gloo = _ceiling("all-reduce", None, 1e9, case="gloo-2-ranks", setting={"ranks": 2})
    for device, network in (("cpu", 1e9), ("cuda:0", None)):
        product = _ceiling("gemm", "fp32", 5.0).model_copy(update={"device": device})
        assert measured_ceilings([product, gloo]).network == network


def test_a_fast_network_can_hide() -> None:
    fast = Ceilings(MACHINE.compute, MACHINE.memory, network=1e12, ranks=2)
    assert "can hide behind the arithmetic" in " ".join(sentences(sample_bound(fast)))


def test_the_scores_of_attention_move_no_bytes() -> None:
    """torch's attention is one kernel: it reads queries, keys and values, and writes the result."""
    graph = language_graph(GPT2)
    inner = inner_values(graph)
    square = [i for i, v in enumerate(graph.values) if v.shape[-2:] == (LENGTH, LENGTH)]
    assert square and inner.issuperset(square)
    scores, mixed = (i for i, node in enumerate(graph.nodes) if node.kind == "product")
    heads = 4 * BATCH * LENGTH * GPT2.width  # bytes of all heads of queries, keys or values
    assert forward_bytes(graph, graph.nodes[scores], "fp32", inner) == 2 * heads
    assert forward_bytes(graph, graph.nodes[mixed], "fp32", inner) == 2 * heads
    assert backward_bytes(graph, scores, "fp32", inner) == 2 * 2 * heads
    softmax = next(i for i, n in enumerate(graph.nodes) if n.op == "aten._safe_softmax.default")
    assert forward_bytes(graph, graph.nodes[softmax], "fp32", inner) == 0
    assert backward_bytes(graph, softmax, "fp32", inner) == 0


def test_a_softmax_of_its_own_moves_its_bytes() -> None:
    assert inner_values(sample_graph()) == frozenset()


def test_a_transformer_has_parts_and_a_bound_in_tokens() -> None:
    machine = Ceilings(
        {("gemm", "fp32"): PEAK, ("convolution", "fp32"): PEAK}, BANDWIDTH, None, None
    )
    found = bound(count(language_graph(GPT2), convention("executed")), machine, "fp32")
    groups = {"attention", "MLP", "norms and sums", "embedding", "output layer and loss"}
    assert {point.group for point in found.points} == groups
    assert found.tokens == BATCH * LENGTH
    assert found.tokens_per_s == pytest.approx(LENGTH * found.samples_per_s)
    rows = part_rows(found)
    assert {row[0] for row in rows} == groups
    assert all(len(row) == len(PARTS) for row in rows)
    assert f"{found.tokens_per_s:,.0f} tokens/s" in sentences(found)[0]
