"""Steps of each parallel mode and the figures that follow: by hand, and for all inputs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vflops.errors import UsageError
from vflops.predict.against import MeasuredPoint, against, worst
from vflops.predict.inputs import Inputs, load, typed, validated
from vflops.predict.lines import Line, best, exchange_lines, parallel_lines, scales_up_to
from vflops.predict.model import predict
from vflops.predict.steps import bubble_share

BASE: dict[str, Any] = {
    "step": {"time_s": 1.0, "batch": 8, "ops_per_sample": 1e12},
    "model": {"gradient_bytes": 1e9, "activation_bytes": 1e7, "layers": 64},
    "node": {"accelerators": 4, "bandwidth": 100e9, "latency_s": 0.0, "power_w": 250.0},
    "link": {"bandwidth": 10e9, "latency_s": 0.0},
    "training": {"samples": 64_000, "epochs": 10, "quality_factor": 0.5},
    "parallel": {"stages": 4, "micro_batches": 8},
}


def inputs(**sections: dict[str, Any]) -> Inputs:
    return validated(BASE).changed(**sections)


def refused(found: Inputs, models: int, ranks: int) -> UsageError:
    with pytest.raises(UsageError) as caught:
        predict(found, models, ranks)
    assert caught.value.cure
    return caught.value


def test_every_figure_of_an_ensemble_by_hand() -> None:
    found = predict(inputs(), 3, 8)
    # A ring of 8 over 10 GB/s: 2 · 7/8 · 1 GB.
    assert found.step.exchange_s == pytest.approx(0.175)
    assert found.efficiency == pytest.approx(1 / 1.175)
    assert found.accelerators == 24
    assert found.flops == pytest.approx(24 * 8e12 / 1.175)
    assert found.vflops == pytest.approx(0.5 * 24 * 8e12 / 1.175)
    assert found.time_s == pytest.approx(10 * 64_000 / 64 * 1.175)
    assert found.energy_j == pytest.approx(24 * 250 * 11_750)
    assert found.vflops_per_w == pytest.approx(0.5 * 8e12 / 1.175 / 250)


def test_models_of_an_ensemble_cost_each_other_nothing_but_what_they_read() -> None:
    assert predict(inputs(), 9, 4).step == predict(inputs(), 1, 4).step
    shared = inputs(storage={"bandwidth": 1e9, "bytes_per_sample": 1e6})
    # 144 accelerators read 8 MB each a step: 1.152 s of the file system's time.
    assert predict(shared, 36, 4).step.total_s == pytest.approx(1.152)
    assert predict(shared, 9, 4).step == predict(inputs(), 9, 4).step


def test_a_figure_that_is_not_known_is_none_and_takes_what_rests_on_it() -> None:
    found = predict(validated({"step": {"time_s": 1.0}}), 5, 1)
    assert found.efficiency == 1.0
    assert (found.flops, found.vflops, found.time_s, found.energy_j) == (None,) * 4


@pytest.mark.parametrize(
    ("precision", "share"), [("fp32", 1), ("fp16", 0.5), ("bf16", 0.5), ("int8", 0.25)]
)
def test_a_smaller_precision_sends_fewer_bytes(precision: str, share: float) -> None:
    found = predict(inputs(exchange={"precision": precision}), 1, 8)
    assert found.step.exchange_s == pytest.approx(0.175 * share)


def test_what_powersgd_saves_must_be_said() -> None:
    small = inputs(exchange={"precision": "powersgd"})
    assert "exchange.share" in (refused(small, 1, 8).cure or "")
    found = predict(small.changed(exchange={"share": 0.02}), 1, 8)
    assert found.step.exchange_s == pytest.approx(0.0035)


def test_buckets_hide_behind_the_backward_pass() -> None:
    found = predict(inputs(exchange={"overlap": 0.1, "buckets": 5}), 1, 8)
    assert found.step.exchange_s == pytest.approx(0.075)
    found = predict(inputs(exchange={"overlap": 0.6, "buckets": 5}), 1, 8)
    assert found.step.exchange_s == pytest.approx(0.035)


def test_sharded_gathers_twice_and_scatters_once() -> None:
    found = predict(inputs(parallel={"mode": "sharded"}), 1, 8)
    assert found.step.exchange_s == pytest.approx(3 * 7 / 8 * 1e9 / 10e9)
    treed = inputs(parallel={"mode": "sharded"}, exchange={"mode": "tree"})
    assert "sharded" in refused(treed, 1, 8).message


def test_layers_one_after_the_other_leave_all_but_one_stage_idle() -> None:
    found = predict(inputs(parallel={"mode": "model"}), 1, 4).step
    # 3 cuts within a node, both ways, of 4 × 10 MB at 100 GB/s.
    assert found.bubble_s == 3.0
    assert found.exchange_s == pytest.approx(6 * 4e7 / 100e9)


def test_a_tensor_split_exchanges_every_layer_twice() -> None:
    found = predict(inputs(parallel={"mode": "tensor"}), 1, 4).step
    assert found.exchange_s == pytest.approx(2 * 64 * 1.5 * 4e7 / 100e9)


def test_the_bubble_of_a_pipeline_is_the_published_share() -> None:
    assert bubble_share(4, 8) == pytest.approx(3 / 11)
    assert bubble_share(4, 8, chunks=2) == pytest.approx(3 / 19)
    for chunks in (1, 2):
        own = inputs(parallel={"mode": "pipeline", "chunks": chunks})
        step = predict(own, 1, 4).step
        share = step.bubble_s / (step.compute_s + step.bubble_s)
        assert share == pytest.approx(bubble_share(4, 8, chunks))


def test_a_pipeline_waits_for_the_messages_that_fill_and_drain_it() -> None:
    step = predict(inputs(parallel={"mode": "pipeline"}), 1, 8).step
    # A micro-batch passes 10 MB: 6 cuts within nodes, 1 between, each way.
    assert step.exchange_s == pytest.approx(2 * (6 * 1e-4 + 1e-3))
    step = predict(inputs(parallel={"mode": "pipeline", "chunks": 2}), 1, 8).step
    # 15 cuts: 12 within, 2 between, and once back from the last stage to the first.
    assert step.exchange_s == pytest.approx(2 * (12 * 1e-4 + 3 * 1e-3))


def test_a_pipeline_over_a_narrow_link_goes_at_its_pace() -> None:
    slow = inputs(parallel={"mode": "pipeline"}, link={"bandwidth": 1e8})
    step = predict(slow, 1, 8).step
    # 16 messages of 0.1 s between nodes, 1 s of which compute hides; and what fills it.
    assert step.exchange_s == pytest.approx(0.6 + 2 * (6 * 1e-4 + 0.1))


def test_replicas_of_a_split_model_exchange_a_part_each_over_a_shared_link() -> None:
    own = inputs(parallel={"mode": "mixed", "split": "tensor"})
    step = predict(own, 1, 8).step
    inner = 2 * 64 * 1.5 * 4e7 / 100e9
    # Two replicas of 4: each of 4 parts, 0.25 GB, has a quarter of 10 GB/s.
    assert step.exchange_s == pytest.approx(inner + 0.25e9 / 2.5e9)
    assert predict(own, 1, 4).step.exchange_s == pytest.approx(inner)


@pytest.mark.parametrize(
    ("sections", "models", "ranks", "told", "cure"),
    [
        ({}, 1, 6, "6 ranks do not fill nodes of node.accelerators = 4", "4 or 8 would"),
        ({}, 0, 4, "0 models of 4 ranks", "--models 1"),
        ({}, 2, 60_000, "120,000 accelerators", "M = 1 at most"),
        (
            {"parallel": {"mode": "mixed", "stages": 8}},
            1,
            12,
            "12 ranks are no whole number of replicas",
            "8 or 16",
        ),
        (
            {"parallel": {"mode": "mixed", "stages": 3}},
            1,
            12,
            "neither divides node.accelerators = 4",
            "parallel.stages = 4",
        ),
        (
            {"parallel": {"mode": "pipeline"}, "model": {"layers": 6}},
            1,
            8,
            "8 stages are more than model.layers = 6",
            "at most 6",
        ),
        (
            {"parallel": {"mode": "pipeline", "micro_batches": 7}},
            1,
            4,
            "parallel.micro_batches = 7 does not divide",
            "parallel.micro_batches = 4",
        ),
        ({"link": {"bandwidth": None}}, 1, 8, "link.bandwidth is not known", "--set link.bandw"),
        ({"step": {"time_s": None}}, 1, 1, "step.time_s is not known", "--set step.time_s=…"),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_fit(
    sections: dict[str, Any], models: int, ranks: int, told: str, cure: str
) -> None:
    error = refused(inputs(**sections), models, ranks)
    assert told in error.message
    assert cure in (error.cure or "")


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("link.bandwidth=0", "link.bandwidth = 0: input should be greater than 0"),
        ("link.bandwidth=-1", "link.bandwidth = -1"),
        ("link.latency_s=nan", "link.latency_s = nan: input should be a finite number"),
        ("step.time_s=inf", "step.time_s = inf: input should be a finite number"),
        ("exchange.overlap=1.5", "exchange.overlap = 1.5"),
        ("exchange.mode=star", "exchange.mode = 'star'"),
        ("link.bandwith=1", "unknown setting 'link.bandwith'"),
        ("links.bandwidth=1", "unknown setting 'links'"),
        ("step=1", "setting step = 1"),
        ("exchange.overlap=0.5", "with one bucket hides nothing"),
        ("link.bandwidth", "has no '='"),
        ("storage.bandwidth=1e9", "bandwidth and bytes_per_sample belong together"),
    ],
)
def test_wrong_settings_are_named_with_their_value(assignment: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(BASE, None, [assignment])
    assert told in caught.value.message


def test_the_last_word_is_the_users() -> None:
    assert load(BASE, None, ["step.batch=4", "step.batch=2"]).step.batch == 2
    assert typed(None, ["exchange.mode=torus"]) == {"exchange": {"mode": "torus"}}


anything = st.fixed_dictionaries(
    {
        "time": st.floats(1e-4, 100),
        "gradient": st.floats(1e3, 1e12),
        "activation": st.floats(1.0, 1e10),
        "node": st.sampled_from([1, 2, 4, 8]),
        "within": st.floats(1e6, 1e12),
        "between": st.floats(1e6, 1e12),
        "latency": st.floats(0, 1e-2),
        "overlap": st.floats(0, 1),
        "buckets": st.integers(2, 50),
        "exchange": st.sampled_from(["ring", "tree", "hierarchical", "torus"]),
        "mode": st.sampled_from(["data", "sharded", "model", "tensor", "pipeline", "mixed"]),
        "split": st.sampled_from(["model", "tensor", "pipeline"]),
        "micro": st.integers(1, 64),
        "chunks": st.integers(1, 4),
    }
)


def made(drawn: dict[str, Any]) -> Inputs:
    sharded = drawn["mode"] == "sharded"
    return validated(
        {
            "step": {"time_s": drawn["time"]},
            "model": {
                "gradient_bytes": drawn["gradient"],
                "activation_bytes": drawn["activation"],
                "layers": 1_000_000,
            },
            "node": {
                "accelerators": drawn["node"],
                "bandwidth": drawn["within"],
                "latency_s": drawn["latency"],
            },
            "link": {"bandwidth": drawn["between"], "latency_s": drawn["latency"]},
            "exchange": {
                "mode": "torus" if sharded else drawn["exchange"],
                "overlap": drawn["overlap"],
                "buckets": drawn["buckets"],
            },
            "parallel": {
                "mode": drawn["mode"],
                "split": drawn["split"],
                "stages": drawn["node"],
                "micro_batches": drawn["micro"],
                "chunks": drawn["chunks"],
            },
        }
    )


@settings(max_examples=40)
@given(anything, st.integers(0, 12), st.floats(1.0, 50.0))
def test_efficiency_is_a_share_and_no_slower_link_helps(
    drawn: dict[str, Any], power: int, slower: float
) -> None:
    ranks = drawn["node"] << power
    found = predict(made(drawn), 1, ranks)
    assert 0 < found.efficiency <= 1
    for worse in (
        {**drawn, "between": drawn["between"] / slower},
        {**drawn, "within": drawn["within"] / slower},
        {**drawn, "latency": drawn["latency"] * slower},
        {**drawn, "gradient": drawn["gradient"] * slower},
        {**drawn, "overlap": drawn["overlap"] / slower},
    ):
        assert predict(made(worse), 1, ranks).efficiency <= found.efficiency * (1 + 1e-12)


@settings(max_examples=40)
@given(anything, st.integers(1, 11))
def test_more_ranks_of_one_model_never_work_better(drawn: dict[str, Any], power: int) -> None:
    drawn = {**drawn, "exchange": "ring"}
    if drawn["mode"] == "sharded":
        drawn["mode"] = "data"
    node = drawn["node"]
    fewer, more = (predict(made(drawn), 1, node << n).efficiency for n in (power, power + 1))
    assert more <= fewer * (1 + 1e-12)


@given(st.integers(1, 512), st.integers(1, 512), st.integers(1, 8))
def test_the_bubble_shrinks_with_micro_batches_and_grows_with_stages(
    stages: int, micro: int, chunks: int
) -> None:
    share = bubble_share(stages, micro, chunks)
    assert 0 <= share < 1
    assert bubble_share(stages, micro + 1, chunks) <= share
    assert bubble_share(stages, micro, chunks + 1) <= share
    assert bubble_share(stages + 1, micro, chunks) > share
    assert bubble_share(stages, micro * chunks) == share


def test_measured_points_are_compared_by_the_time_of_a_step() -> None:
    narrow = {"link": {"bandwidth": 1e9}}
    points = [
        MeasuredPoint(8, 1.175),
        MeasuredPoint(8, 2.5, name="1 GB/s", changes=narrow),
        MeasuredPoint(4, 2.0, models=2),
    ]
    found = against(points, inputs())
    assert [each.error for each in found] == pytest.approx([0.0, 0.1, -0.4925])
    assert worst(found) == pytest.approx(0.4925)
    with pytest.raises(UsageError, match="step_s of measured point 8 is 0"):
        against([MeasuredPoint(8, 0.0)], inputs())


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
    assert line.at(400).efficiency >= 0.5 > line.at(404).efficiency
    assert Line("data", inputs()).pays_up_to(scales) is None
    nowhere = inputs(step={"time_s": 1e-9}, node={"accelerators": 1})
    assert Line("data", nowhere).pays_up_to([2, 4]) == 0


def test_modes_that_lack_a_figure_are_named_and_the_rest_are_drawn() -> None:
    own = inputs(model={"activation_bytes": None}, parallel={"stages": None})
    found = parallel_lines(own, [1, 2, 4, 8])
    assert [line.name for line in found.lines] == ["bagging", "data", "sharded"]
    assert set(found.missing) == {"model", "tensor", "pipeline", "data × pipeline"}
    assert "model.activation_bytes" in found.missing["tensor"].message
    assert len(exchange_lines(own, [1, 8]).lines) == 4


def test_the_most_efficient_mode_changes_where_another_overtakes_it() -> None:
    own = inputs(link={"latency_s": 1e-3}, parallel={"mode": "mixed"})
    scales = scales_up_to(own, 4096)
    found = best([Line("data", own.changed(parallel={"mode": "data"})), Line("mixed", own)], scales)
    assert [name for _, name in found] == ["data", "mixed"]
    assert best([Line("bagging", own, bagging=True)], scales) == []
