"""What is no prediction: settings that cannot be, and what a run refuses."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.predict_inputs import BASE, inputs, refused
from vflops.config.training import TrainSettings
from vflops.errors import UsageError
from vflops.studies.predict.inputs import load, parse_inputs, read_user_inputs
from vflops.studies.predict.scaling_model import predict


@pytest.mark.parametrize(
    ("sections", "models", "ranks", "told", "hint"),
    [
        ({}, 1, 6, "6 ranks do not fill nodes of node.accelerators = 4", "use 4 or 8 ranks"),
        ({}, 0, 4, "0 models of 4 ranks", "--models 1"),
        ({}, 2, 60_000, "120,000 accelerators", "use at most 1 models"),
        (
            {"parallel": {"mode": "mixed", "sharing": 8}},
            1,
            12,
            "12 ranks are not a multiple of",
            "8 or 16",
        ),
        (
            {"parallel": {"mode": "mixed", "sharing": 3}},
            1,
            12,
            "neither divides node.accelerators = 4",
            "parallel.sharing = 4",
        ),
        (
            {"parallel": {"mode": "mixed", "sharing": None, "mesh": [2, 2]}},
            1,
            8,
            "parallel.mesh [2, 2] must multiply to 8 ranks, each side at least 2",
            "use one of [2, 4], [4, 2]",
        ),
        (
            {"parallel": {"mode": "mixed"}},
            1,
            4,
            "parallel.mesh [1, 4] must multiply to 4",
            "[2, 2]",
        ),
        (
            {"parallel": {"mode": "pipeline"}, "model": {"layers": 6}},
            1,
            8,
            "the model cannot be cut into 8 stages: it has layers for at most 6",
            "use --ranks 6 or fewer",
        ),
        (
            {"parallel": {"mode": "mixed", "sharing": 4}, "model": {"layers": 3}},
            1,
            8,
            "the model cannot be cut into 4 stages: it has layers for at most 3",
            "use parallel.sharing=3 or fewer",
        ),
        (
            {"parallel": {"mode": "model", "split": "tensor"}, "model": {"divisor": 6}},
            1,
            4,
            "4 ranks cannot share model.divisor = 6 heads or channels evenly",
            "use 2, 3, 6 ranks",
        ),
        (
            {"parallel": {"mode": "model", "split": "tensor"}, "model": {"sums": 0}},
            1,
            4,
            "it declares no channel_pairs",
            "parallel.split=layers",
        ),
        (
            {"parallel": {"mode": "pipeline"}, "train": {"accumulate": 7}},
            1,
            4,
            "train.accumulate = 7 does not divide",
            "train.accumulate = 4",
        ),
        ({"link": {"bandwidth": None}}, 1, 8, "link.bandwidth is not known", "--set link.bandw"),
        ({"step": {"time_s": None}}, 1, 1, "step.time_s is not known", "--set step.time_s=…"),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_fit(
    sections: dict[str, Any], models: int, ranks: int, told: str, hint: str
) -> None:
    error = refused(inputs(**sections), models, ranks)
    assert told in error.message
    assert hint in (error.hint or "")


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("link.bandwidth=0", "link.bandwidth = 0: input should be greater than 0"),
        ("link.bandwidth=-1", "link.bandwidth = -1"),
        ("link.latency_s=nan", "link.latency_s = nan: input should be a finite number"),
        ("step.time_s=inf", "step.time_s = inf: input should be a finite number"),
        ("communication.overlap=1.5", "communication.overlap = 1.5"),
        ("communication.mode=star", "communication.mode = 'star'"),
        ("communication.mode=ring", "communication.mode = 'ring'"),
        ("exchange.mode=torus", "unknown setting 'exchange'"),
        ("parallel.mesh=[2, 2]", "mesh [2, 2] and sharing 4 contradict"),
        ("link.bandwith=1", "unknown setting 'link.bandwith'"),
        ("links.bandwidth=1", "unknown setting 'links'"),
        ("step=1", "setting step = 1"),
        ("communication.overlap=0.5", "has no effect with one bucket"),
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
    told = ["train.communication.mode=torus", "train.accumulate=8", "communication.mode=all-reduce"]
    assert read_user_inputs(None, told) == {
        "communication": {"mode": "all-reduce"},
        "train": {"accumulate": 8},
    }


@pytest.mark.parametrize(
    ("told", "ranks"),
    [
        ({"parallel": {"mode": "sharded"}, "communication": {"precision": "int8"}}, 8),
        ({"parallel": {"mode": "sharded"}, "communication": {"mode": "torus"}}, 8),
        ({"parallel": {"mode": "pipeline"}, "communication": {"precision": "fp16"}}, 8),
        ({"parallel": {"mode": "model"}, "communication": {"mode": "hierarchical"}}, 8),
        ({"communication": {"mode": "torus"}}, 2),
        ({"communication": {"mode": "torus", "near": 3}}, 8),
        ({"communication": {"mode": "torus", "precision": "powersgd"}}, 8),
        ({"communication": {"near": 2}}, 8),
        ({"parallel": {"mode": "pipeline"}, "accumulate": 4}, 8),
        ({"parallel": {"mode": "pipeline", "schedule": "interleaved"}, "accumulate": 6}, 4),
        ({"parallel": {"mode": "mixed", "mesh": [3, 2]}}, 8),
    ],
)
def test_what_a_run_refuses_is_not_predicted_and_for_its_reason(
    told: dict[str, Any], ranks: int
) -> None:
    defaults = {"accumulate": 64, **told}
    with pytest.raises(ValidationError) as caught:
        TrainSettings(ranks=ranks, batch=64 * ranks, **defaults)
    reason = caught.value.errors()[0]["msg"].removeprefix("Value error, ")
    sections = {key: value for key, value in defaults.items() if key != "accumulate"}
    own = parse_inputs(
        {**BASE, "parallel": {}, "train": {"accumulate": defaults["accumulate"]}, **sections}
    )
    with pytest.raises(UsageError) as predicted:
        predict(own, 1, ranks)
    assert reason.startswith(predicted.value.message)


def test_rows_are_a_node_or_as_asked_where_all_links_are_alike() -> None:
    told = {"mode": "torus", "near": 4}
    assert predict(inputs(communication=told), 1, 8).step.exchange_s > 0
    error = refused(inputs(communication={**told, "near": 2}), 1, 8)
    assert "predictions need rows of the 4 ranks of a node" in error.message
    alike = inputs(node={"accelerators": 1}, communication={"mode": "hierarchical", "near": 4})
    # 2 rows of 4: 1 GB to a leader and back, 2 · 1/2 of it between two of them, at 10 GB/s.
    assert predict(alike, 1, 8).step.exchange_s == pytest.approx(0.2 + 0.1)
