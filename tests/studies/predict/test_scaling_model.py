"""Steps of each parallel mode and the figures that follow: by hand, and for all inputs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.predict_inputs import inputs, refused
from vflops.studies.predict.inputs import Inputs, parse_inputs
from vflops.studies.predict.predict_text import notes, prediction_rows
from vflops.studies.predict.scaling_model import predict
from vflops.studies.predict.step_time import bubble_share
from vflops.studies.predict.sweeps import (
    EXCHANGE_MODES,
)


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


@pytest.mark.parametrize("factor", [1.0, 1.8])
def test_a_quality_factor_counts_as_at_most_1(factor: float) -> None:
    found = predict(inputs(training={"quality_factor": factor}), 3, 8)
    assert found.vflops == found.flops


def test_steps_are_whole_and_only_the_last_batch_of_all_epochs_is_filled_up() -> None:
    # 3 epochs of 100 samples in batches of 64: one stream of 300, as the trainer takes it.
    few = inputs(training={"samples": 100, "epochs": 3})
    assert predict(few, 1, 8).time_s == pytest.approx(5 * 1.175)


def test_a_batch_that_is_more_than_the_data_has_no_time_and_no_quality() -> None:
    few = inputs(training={"samples": 64})
    fits, large = predict(few, 1, 8), predict(few, 2, 12)
    assert fits.reason is None and fits.time_s == pytest.approx(10 * 1.175)
    assert (large.time_s, large.energy_j, large.vflops, large.vflops_per_w) == (None,) * 4
    assert large.reason == "a batch of 96 is larger than the data of 64 samples"
    assert large.flops is not None and large.efficiency > 0
    assert notes([fits], few)[0].startswith("VFLOPS and time assume the quality factor")
    told = notes([fits, large], few)
    assert "from P = 12 on: a batch of 96" in told[0] and "use more models" in told[0]
    names, row = prediction_rows([large])
    assert row[names.index("time")] == row[names.index("VFLOPS")] == "—"


def test_models_of_an_ensemble_cost_each_other_nothing_but_what_they_read() -> None:
    assert predict(inputs(), 9, 4).step == predict(inputs(), 1, 4).step
    shared = inputs(storage={"bandwidth": 1e9, "bytes_per_sample": 1e6})
    # 144 accelerators read 8 MB each a step: 1.152 s of the file system's time.
    assert predict(shared, 36, 4).step.total_s == pytest.approx(1.152)
    assert predict(shared, 9, 4).step == predict(inputs(), 9, 4).step


def test_a_figure_that_is_not_known_is_none_and_takes_what_rests_on_it() -> None:
    found = predict(parse_inputs({"step": {"time_s": 1.0}}), 5, 1)
    assert found.efficiency == 1.0
    assert (found.flops, found.vflops, found.time_s, found.energy_j) == (None,) * 4


@pytest.mark.parametrize(
    ("precision", "share"), [("fp32", 1), ("fp16", 0.5), ("bf16", 0.5), ("int8", 0.25)]
)
def test_a_smaller_precision_sends_fewer_bytes(precision: str, share: float) -> None:
    found = predict(inputs(communication={"precision": precision}), 1, 8)
    assert found.step.exchange_s == pytest.approx(0.175 * share)


def test_what_powersgd_saves_must_be_said() -> None:
    small = inputs(communication={"precision": "powersgd"})
    assert "communication.share" in (refused(small, 1, 8).hint or "")
    found = predict(small.with_changes(communication={"share": 0.02}), 1, 8)
    assert found.step.exchange_s == pytest.approx(0.0035)


def test_buckets_hide_behind_the_backward_pass() -> None:
    found = predict(inputs(communication={"overlap": 0.1, "buckets": 5}), 1, 8)
    assert found.step.exchange_s == pytest.approx(0.075)
    found = predict(inputs(communication={"overlap": 0.6, "buckets": 5}), 1, 8)
    assert found.step.exchange_s == pytest.approx(0.035)


def test_sharded_gathers_twice_and_scatters_once() -> None:
    found = predict(inputs(parallel={"mode": "sharded"}), 1, 8)
    assert found.step.exchange_s == pytest.approx(3 * 7 / 8 * 1e9 / 10e9)
    treed = inputs(parallel={"mode": "sharded"}, communication={"algorithm": "tree"})
    assert predict(treed, 1, 8) == found  # nothing is gathered or scattered by a tree


def test_layers_one_after_the_other_leave_all_but_one_stage_idle() -> None:
    found = predict(inputs(parallel={"mode": "model"}), 1, 4).step
    # 3 cuts within a node, both ways, of 4 × 10 MB at 100 GB/s.
    assert found.bubble_s == 3.0
    assert found.exchange_s == pytest.approx(6 * 4e7 / 100e9)


def test_a_tensor_split_exchanges_every_layer_twice() -> None:
    found = predict(inputs(parallel={"mode": "model", "split": "tensor"}), 1, 4).step
    assert found.exchange_s == pytest.approx(2 * 64 * 1.5 * 4e7 / 100e9)


def test_the_bubble_of_a_pipeline_is_the_published_share() -> None:
    assert bubble_share(4, 8) == pytest.approx(3 / 11)
    assert bubble_share(4, 8, chunks=2) == pytest.approx(3 / 19)
    for schedule, chunks in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2)):
        own = inputs(parallel={"mode": "pipeline", "schedule": schedule})
        step = predict(own, 1, 4).step
        share = step.bubble_s / (step.compute_s + step.bubble_s)
        assert share == pytest.approx(bubble_share(4, 8, chunks))


def test_a_pipeline_waits_for_the_messages_that_fill_and_drain_it() -> None:
    step = predict(inputs(parallel={"mode": "pipeline"}), 1, 8).step
    # A micro-batch passes 10 MB: 6 cuts within nodes, 1 between, each way.
    assert step.exchange_s == pytest.approx(2 * (6 * 1e-4 + 1e-3))
    step = predict(inputs(parallel={"mode": "pipeline", "schedule": "interleaved"}), 1, 8).step
    # 15 cuts: 12 within, 2 between, and once back from the last stage to the first.
    assert step.exchange_s == pytest.approx(2 * (12 * 1e-4 + 3 * 1e-3))


def test_a_pipeline_over_a_narrow_link_goes_at_its_pace() -> None:
    slow = inputs(parallel={"mode": "pipeline"}, link={"bandwidth": 1e8})
    step = predict(slow, 1, 8).step
    # 16 messages of 0.1 s between nodes, 1 s of which compute hides; and what fills it.
    assert step.exchange_s == pytest.approx(0.6 + 2 * (6 * 1e-4 + 0.1))


def test_copies_of_a_shared_model_exchange_a_part_each_over_a_shared_link() -> None:
    told = {"mode": "mixed", "within": "model", "split": "tensor"}
    own = inputs(parallel=told)
    step = predict(own, 1, 8).step
    inner = 2 * 64 * 1.5 * 4e7 / 100e9
    # Two copies of 4: each of 4 parts, 0.25 GB, has a quarter of 10 GB/s.
    assert step.exchange_s == pytest.approx(inner + 0.25e9 / 2.5e9)
    meshed = inputs(parallel={**told, "sharing": None, "mesh": [2, 4]})
    assert predict(meshed, 1, 8) == predict(own, 1, 8)


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
        "way": st.sampled_from(list(EXCHANGE_MODES)),
        "mode": st.sampled_from(["data", "sharded", "model", "pipeline", "mixed"]),
        "inner": st.sampled_from(["model", "pipeline"]),
        "split": st.sampled_from(["layers", "tensor"]),
        "schedule": st.sampled_from(["gpipe", "1f1b", "interleaved"]),
    }
)


def made(drawn: dict[str, Any]) -> Inputs:
    copies = drawn["mode"] in ("data", "mixed")
    return parse_inputs(
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
            "communication": {
                **EXCHANGE_MODES[drawn["way"] if copies else "all-reduce, ring"],
                "overlap": drawn["overlap"],
                "buckets": drawn["buckets"],
            },
            "parallel": {
                "mode": drawn["mode"],
                "within": drawn["inner"],
                "split": drawn["split"],
                "schedule": drawn["schedule"],
                "sharing": max(2, drawn["node"]),
            },
        }
    )


@settings(max_examples=40)
@given(anything, st.integers(4, 12), st.floats(1.0, 50.0))
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
@given(anything, st.integers(2, 11))
def test_more_ranks_of_one_model_never_work_better(drawn: dict[str, Any], power: int) -> None:
    drawn = {**drawn, "way": "all-reduce, ring"}
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
