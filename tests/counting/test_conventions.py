"""The conventions on graphs written by hand, where every number can be verified by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.networks import CASES
from vflops.counting.capture import capture
from vflops.counting.conventions import BUILT_IN, convention
from vflops.counting.count import count
from vflops.errors import UsageError
from vflops.record.formats.graph import Graph, Node, Value
from vflops.testing.conventions import ConventionConformance


def single(
    kind: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], **attributes: Any
) -> Graph:
    """A graph of one node whose second operand is a parameter."""
    values = [Value(shape=shape, dtype="float32", grad=True) for shape in inputs]
    parameters = {}
    if kind in ("convolution", "dense"):
        values[1] = values[1].model_copy(update={"parameter": "w"})
        parameters["w"] = values[1].elements
    values.append(Value(shape=output, dtype="float32", grad=True))
    last = len(values) - 1
    node = Node(
        kind=kind,
        op=kind,
        scope="",
        inputs=tuple(range(last)),
        outputs=(last,),
        attributes=attributes,
    )
    return Graph(
        model="single",
        framework="none",
        batch=1,
        inputs=(0,),
        outputs=(last,),
        parameters=parameters,
        values=tuple(values),
        nodes=(node,),
    )


def convolution(groups: int, channels_out: int) -> Graph:
    weight = (channels_out, 8 // groups, 3, 3)
    attributes = {"kernel": (3, 3), "groups": groups, "transposed": False}
    return single("convolution", [(1, 8, 6, 6), weight], (1, channels_out, 4, 4), **attributes)


def test_table_3_convolution_plain_grouped_and_depthwise() -> None:
    rules = convention("hpcai500")
    assert count(convolution(1, 16), rules).total.forward == 2 * 9 * 8 * 4 * 4 * 16
    assert count(convolution(4, 16), rules).total.forward == 2 * 9 * 8 * 4 * 4 * 16 // 4
    assert count(convolution(8, 8), rules).total.forward == 2 * 9 * 8 * 4 * 4


def test_table_3_pooling_counts_its_input_and_elementwise_its_output() -> None:
    rules = convention("hpcai500")
    pool = single("average-pool", [(1, 4, 8, 8)], (1, 4, 2, 2), kernel=(4, 4))
    assert count(pool, rules).total.forward == 4 * 8 * 8
    widened = single("elementwise", [(1, 4, 1, 1)], (1, 4, 8, 8), function="mul")
    assert count(widened, rules).total.forward == 4 * 8 * 8


def test_aiperf_weights_of_simple_divide_and_special() -> None:
    rules = convention("aiperf")
    for function, weight in {"add": 1, "mul": 1, "div": 4, "sqrt": 4, "exp": 8}.items():
        graph = single("elementwise", [(1, 10)], (1, 10), function=function)
        assert count(graph, rules).total.forward == 10 * weight


def test_aiperf_updates_each_parameter_once_however_often_it_is_used() -> None:
    build, spec = CASES["shared"]
    graph = capture(build, [spec], name="shared")
    total = count(graph, convention("aiperf")).total
    assert total.update == 2 * (8 * 8 + 8)
    assert total.backward == 3 * 2 * 2 * 8 * 8


def test_operators_without_a_rule_are_listed_with_their_share() -> None:
    build, spec = CASES["encoder"]  # attention on features; on tokens, nothing is left out
    counted = count(capture(build, [spec], name="encoder"), convention("aiperf"))
    kinds = {item.kind for item in counted.uncounted}
    assert {"product", "normalization"} <= kinds
    shares = [item.share for item in counted.uncounted]
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) < 1


def test_an_unknown_operator_is_reported_never_a_silent_zero() -> None:
    graph = single("other", [(1, 10)], (1, 10))
    for rules in BUILT_IN:
        assert [item.op for item in count(graph, rules).uncounted] == ["other"]


def test_unknrule_set_of_suggests_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        convention("aiperf-orginal")
    assert caught.value.hint is not None
    assert "aiperf-original" in caught.value.hint


@pytest.mark.parametrize("convention", BUILT_IN, ids=lambda built_in: built_in.id)
class TestBuiltIn(ConventionConformance):
    """The built-in conventions pass the tests that every convention must pass."""
