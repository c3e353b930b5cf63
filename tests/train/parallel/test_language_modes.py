"""Every parallel mode trains a language model as one rank does, to 1e-9 in double precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.predicted_traffic import PredictedTraffic
from tests.support.shared_device import on_both
from tests.support.team_runs import Team, Trained

SHORT = (
    "context=64",
    "synthetic.vocabulary=65",
    "synthetic.train=16384",
    "synthetic.validation=1000",
    "train.batch=64",
    "train.epochs=1",
    "train.warmup_epochs=0",
    "network.width=16",
    "network.mlp_width=32",
)
"""Four steps of 64 windows."""
GPT = (*SHORT, "network.layers=2", "network.heads=4")
"""The output layer is tied to the embedding."""
LLAMA = (
    *SHORT,
    "network.style=llama",
    "network.layers=2",
    "network.heads=4",
    "network.kv_heads=2",
    "network.qk_norm=true",
    "network.tied=false",
    "train.optimizer=muon",
)
EXPERTS = (*GPT, "network.style=llama", "network.experts=4", "network.capacity=1.0")
"""Some tokens find no place in their experts."""
LIMIT = 1e-9
PREDICTED = ("data", "sharded", "tensor", "layers", "1f1b", "interleaved")
"""The ways whose traffic is compared with predictions."""
TENSOR = {"mode": "model", "split": "tensor"}
Ways = dict[str, dict[str, Any]]


def piped(schedule: str) -> dict[str, Any]:
    return {"ranks": 2, "parallel": {"mode": "pipeline", "schedule": schedule}, "accumulate": 2}


def mixed(**options: Any) -> dict[str, Any]:
    return {"ranks": 4, "parallel": {"mode": "mixed", "mesh": (2, 2), **options}}


TWO: Ways = {
    "data": {"ranks": 2},
    "sharded": {"ranks": 2, "parallel": {"mode": "sharded"}},
    "tensor": {"ranks": 2, "parallel": TENSOR},
    "layers": {"ranks": 2, "parallel": {"mode": "model"}},
}
MORE: Ways = {
    "sharded-parts": {"ranks": 2, "accumulate": 2, "parallel": {"mode": "sharded"}},
    "tensor-lamb": {"ranks": 2, "parallel": TENSOR, "optimizer": "lamb"},
    **{schedule: piped(schedule) for schedule in ("1f1b", "interleaved")},
    "mixed-pipeline": {**mixed(), "accumulate": 2},
    "mixed-tensor": mixed(within="model", split="tensor"),
}


@pytest.mark.parametrize(
    ("network", "ways"),
    [(GPT, TWO | MORE), (LLAMA, TWO | {"1f1b": piped("1f1b")})],
    ids=["gpt2", "llama-muon"],
)
@on_both
def test_every_mode_trains_as_one_rank(
    network: tuple[str, ...], ways: Ways, device: str, tmp_path: Path
) -> None:
    team = Team(tmp_path, *network, workload="language-model", device=device)
    trainings = team.train({name: (team.way(**way),) for name, way in ways.items()})
    assert {len(mine.losses) for mine, _ in trainings.values()} == {4}
    assert device != "cpu" or not {  # predictions are those of gloo
        name: traffic
        for name, (mine, _) in trainings.items()
        if name in PREDICTED and not (traffic := PredictedTraffic(team, ways[name], mine)).fits
    }
    assert not {name: text for name, pair in trainings.items() if (text := apart(*pair))}
    for name, (mine, _) in trainings.items():
        way = team.way(**ways[name])
        planned = team.planned_numbers(way)  # as if Muon kept two numbers for each
        kept = mine.numbers
        assert kept == planned or (way.optimizer == "muon" and 0.7 * planned < kept < planned), name


@on_both
def test_experts_train_as_one_rank_that_routes_the_same_parts(device: str, tmp_path: Path) -> None:
    """Places and balance are those of the samples that a rank computes at once."""
    team = Team(tmp_path, *EXPERTS, workload="language-model", device=device)
    ways: Ways = {**TWO, "1f1b": piped("1f1b"), "parts": {"accumulate": 2}}
    trained = team.train({name: (team.way(**way),) for name, way in ways.items()})
    parts = trained["parts"][0]
    for name in ("tensor", "layers", "1f1b"):
        assert not apart(*trained[name]), name
    for name in ("data", "sharded"):
        mine, whole = trained[name]
        assert mine.far(parts) < LIMIT and mine.losses_far(parts) < LIMIT, name
        assert mine.losses_far(whole) > 1e-6  # other tokens find a place


def apart(mine: Trained, alone: Trained) -> str | None:
    """Return by how much a training differs from its reference; None if it does not."""
    same = mine.far(alone) < LIMIT and mine.losses_far(alone) < 1e-6  # pipelines record fp32
    close = abs(mine.quality[0] - alone.quality[0]) < 1e-6 and mine.quality[1] == alone.quality[1]
    if mine.starts_as(alone) and same and close:
        return None
    return f"{mine.far(alone):.1e} {mine.losses_far(alone):.1e} {mine.quality} {alone.quality}"


CHAIN: tuple[dict[str, Any], ...] = (
    {},
    {"ranks": 2, "parallel": {"mode": "pipeline"}, "accumulate": 2},
    {"ranks": 2, "parallel": {"mode": "sharded"}},
    {"ranks": 2, "parallel": TENSOR},
    {"ranks": 2},
    {"ranks": 2, "parallel": {"mode": "model"}},
)


@on_both
def test_a_checkpoint_of_any_mode_is_one_for_all(device: str, tmp_path: Path) -> None:
    """Tied weights have one optimizer state, however many ranks have a copy of them."""
    settings = [item for item in GPT if not item.startswith("train.e")]
    team = Team(tmp_path, *settings, "train.epochs=6", workload="language-model", device=device)
    ways = [team.way(**way, end_epoch=number) for number, way in enumerate(CHAIN, start=1)]
    ((mine, alone),) = team.train({"chain": ways}).values()
    assert len(mine.losses) == 24 and len(mine.all("resumed")) == 5
    assert mine.far(alone) < LIMIT and mine.losses_far(alone) < 1e-6
