"""Modes over accelerators: where they stop paying, which are left out, what was measured."""

from __future__ import annotations

import pytest

from tests.support.predict_inputs import inputs
from vflops.errors import UsageError
from vflops.studies.predict.sweeps import (
    Line,
    exchange_lines,
    fitting_scales,
    most_efficient_modes,
    parallel_lines,
    scales_up_to,
)
from vflops.studies.predict.validation import (
    MeasuredStepTime,
    compare_with_predictions,
    largest_error,
)


def test_measured_points_are_compared_by_the_time_of_a_step() -> None:
    narrow = {"link": {"bandwidth": 1e9}}
    points = [
        MeasuredStepTime(8, 1.175),
        MeasuredStepTime(8, 2.5, name="1 GB/s", changes=narrow),
        MeasuredStepTime(4, 2.0, models=2),
    ]
    found = compare_with_predictions(points, inputs())
    assert [each.error for each in found] == pytest.approx([0.0, 0.1, -0.4925])
    assert largest_error(found) == pytest.approx(0.4925)
    with pytest.raises(UsageError, match="step_s of measured point 8 is 0"):
        compare_with_predictions([MeasuredStepTime(8, 0.0)], inputs())


def test_scales_double_within_a_node_and_then_by_nodes() -> None:
    assert scales_up_to(inputs(node={"accelerators": 6}), 50) == [1, 2, 4, 6, 12, 24, 48]
    assert scales_up_to(inputs(), 100_000)[-1] == 100_000
    assert scales_up_to(inputs(), 3) == [1, 2]


def test_where_a_mode_stops_paying_is_found_to_the_node() -> None:
    # 2(n−1)/n · 0.1 s of bytes and 2(n−1) of 1 ms are 1 s at n = 401.2; nodes are of 4.
    own = inputs(link={"latency_s": 1e-3})
    line = Line("data", own)
    scales = scales_up_to(own, 4096)
    edge = line.pays_up_to(scales)
    assert edge == 400
    assert line.predict_at(400).efficiency >= 0.5 > line.predict_at(404).efficiency
    assert Line("data", inputs()).pays_up_to(scales) is None
    nowhere = inputs(step={"time_s": 1e-9}, node={"accelerators": 1})
    assert Line("data", nowhere).pays_up_to([2, 4]) == 0


def test_the_reason_of_a_mode_without_a_line_is_that_of_the_largest_scale() -> None:
    own = inputs(parallel={"sharing": 8}, train={"accumulate": 4})
    found = parallel_lines(own, [1, 2, 4, 8, 64]).missing["data × pipeline"]
    assert found.message.startswith(
        "a pipeline of 8 ranks with schedule 1f1b needs at least as many"
    )
    assert found.hint == "use --set train.accumulate=16"


def test_scales_that_a_mode_does_not_fit_are_left_out_with_the_reason() -> None:
    mixed = inputs(parallel={"mode": "mixed"})
    told = "no P = 2, 4: parallel.mesh [1, 4] must multiply to 4 ranks, each side at least 2"
    assert fitting_scales(mixed, 16) == ([1, 8, 16], told)
    assert fitting_scales(inputs(), 8) == ([1, 2, 4, 8], None)
    with pytest.raises(UsageError, match=r"link\.bandwidth is not known"):
        fitting_scales(inputs(link={"bandwidth": None}), 8)
    meshed = inputs(parallel={"mode": "mixed", "sharing": None, "mesh": [3, 4]})
    assert fitting_scales(meshed, 16)[0] == [1, 12]


def test_modes_that_lack_a_figure_are_named_and_the_rest_are_drawn() -> None:
    own = inputs(model={"activation_bytes": None}, parallel={"sharing": None})
    found = parallel_lines(own, [1, 2, 4, 8])
    assert [line.name for line in found.lines] == ["bagging", "data", "sharded"]
    assert set(found.missing) == {"model, layers", "model, tensor", "pipeline", "data × pipeline"}
    assert "model.activation_bytes" in found.missing["model, tensor"].message
    assert len(exchange_lines(own, [1, 8]).lines) == 4


def test_the_most_efficient_mode_changes_where_another_overtakes_it() -> None:
    own = inputs(link={"latency_s": 1e-3}, parallel={"mode": "mixed"})
    scales = scales_up_to(own, 4096)
    found = most_efficient_modes(
        [Line("data", own.with_changes(parallel={"mode": "data"})), Line("mixed", own)], scales
    )
    assert [name for _, name in found] == ["data", "mixed"]
    assert most_efficient_modes([Line("bagging", own, bagging=True)], scales) == []
