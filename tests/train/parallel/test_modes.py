"""Every parallel mode gives the result of one rank: losses, weights, statistics, momenta.

Four steps in double precision, on two and on four ranks, compared with one rank whose batch norm
sees the same samples: the whole batch if it is synchronised or the batch is not shared, else one
ghost per share; with ``accumulate`` each part of the batch separately.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support import team_runs
from tests.support.shared_device import on_both
from tests.support.team_runs import Team, Trained

FOUR_STEPS = ("train.epochs=2", "train.evaluate_every=2")
"""Enough: a gradient, statistic or momentum that is wrong differs from the second step on."""
SMALL, DEEP = (*team_runs.SMALL, *FOUR_STEPS), (*team_runs.DEEP, *FOUR_STEPS)
LIMIT = 1e-10
"""The measured differences are 1e-14."""
TENSOR = {"mode": "model", "split": "tensor"}
SYNCHRONISED = {"batch_norm": "synchronised"}


Ways = dict[str, dict[str, Any]]


def piped(schedule: str, ranks: int) -> dict[str, Any]:
    parallel = {"mode": "pipeline", "schedule": schedule}
    return {"ranks": ranks, "parallel": parallel, "accumulate": 4}


def mixed(**options: Any) -> dict[str, Any]:
    return {"ranks": 4, "parallel": {"mode": "mixed", "mesh": (2, 2), **options}}


def shared(ranks: int) -> Ways:
    """Return the modes that work with any number of ranks."""
    ways: Ways = {
        f"{mode}-{norm}": {"ranks": ranks, "parallel": {"mode": mode}, "batch_norm": norm}
        for mode in ("data", "sharded")
        for norm in ("local", "synchronised")
    }
    ways["layers"] = {"ranks": ranks, "parallel": {"mode": "model"}}
    ways["tensor"] = {"ranks": ranks, "parallel": TENSOR}
    return ways | {schedule: piped(schedule, ranks) for schedule in ("gpipe", "1f1b")}


MIXED: Ways = {
    "pipeline": {**mixed(), "accumulate": 2},
    "pipeline-synchronised": {**mixed(), "accumulate": 2, **SYNCHRONISED},
    "interleaved": {**mixed(schedule="interleaved"), "accumulate": 2},
    "layers": mixed(within="model"),
    "tensor": mixed(within="model", split="tensor"),
    "tensor-synchronised": {**mixed(within="model", split="tensor"), **SYNCHRONISED},
}
LAMB = {"optimizer": "lamb", "nesterov": False}
"""It needs the norm of a layer, which may be divided between ranks."""
FURTHER: Ways = {
    "interleaved-two": piped("interleaved", 2),
    "interleaved-four": piped("interleaved", 4),
    "three-stages": {"ranks": 3, "parallel": {"mode": "model"}, "accumulate": 2},
    "data-parts": {"ranks": 2, "accumulate": 2},
    "sharded-parts": {"ranks": 2, "accumulate": 2, "parallel": {"mode": "sharded"}},
    "sharded-lamb": {"ranks": 2, "parallel": {"mode": "sharded"}, **LAMB},
    "tensor-lamb": {"ranks": 2, "parallel": TENSOR, **LAMB},
    "layers-lamb": {"ranks": 2, "parallel": {"mode": "model"}, **LAMB},
}


@on_both
@pytest.mark.parametrize(
    ("network", "ways"),
    [(SMALL, shared(2)), (SMALL, shared(4)), (SMALL, MIXED), (DEEP, FURTHER)],
    ids=["two", "four", "mixed", "further"],
)
def test_every_mode_trains_as_one_rank(
    network: tuple[str, ...], ways: Ways, device: str, tmp_path: Path
) -> None:
    team = Team(tmp_path, *network, device=device)
    trainings = team.train({name: (team.way(**way),) for name, way in ways.items()})
    assert {len(mine.losses) for mine, _ in trainings.values()} == {4}
    assert not apart(trainings)
    assert {name: mine.numbers for name, (mine, _) in trainings.items()} == {
        name: team.planned_numbers(team.way(**way)) for name, way in ways.items()
    }


def test_what_batch_norm_sees_is_what_the_references_differ_in(tmp_path: Path) -> None:
    """Otherwise the test above would pass whatever batch norm did.

    Consecutive parts give the weights of ghosts, but different running statistics.
    """
    team = Team(tmp_path, *team_runs.SMALL, "train.epochs=5", "train.evaluate_every=5")
    ways = {
        "whole": {},
        "halves": {"ghosts": 2},
        "ghosts": {"ghosts": 4},
        "parts": {"accumulate": 4},
    }
    trainings = team.train({name: (team.way(**way),) for name, way in ways.items()})
    whole, halves, ghosts, parts = (mine for mine, _ in trainings.values())
    assert min(whole.losses_far(halves), whole.losses_far(ghosts), halves.losses_far(ghosts)) > 1e-3
    assert parts.far(ghosts, statistics=False) < LIMIT
    assert parts.far(ghosts) > 1e-3


FRAMES = (
    "synthetic.height=32",
    "synthetic.width=32",
    "synthetic.train=16",
    "synthetic.validation=6",
    "synthetic.test=1",
    "network.blocks=[1,1]",
    "network.width=4",
    "network.channels=8",
    "network.hidden=8",
    "network.anchor_samples=16",
    "network.candidates=16",
    "network.proposals=8",
    "network.regions=8",
    "network.region_size=3",
    "train.batch=8",
    "train.epochs=2",
    "train.evaluate_every=2",
)
"""Four steps of a detector, by Adam."""
DETECTOR: Ways = {
    "data": {"ranks": 2},
    "sharded": {"ranks": 2, "parallel": {"mode": "sharded"}},
    "layers": {"ranks": 2, "parallel": {"mode": "model"}},
    "tensor": {"ranks": 2, "parallel": TENSOR},
    **{item: {**piped(item, 2), "accumulate": 2} for item in ("gpipe", "1f1b", "interleaved")},
    "mixed-pipeline": {**mixed(), "accumulate": 2},
    "mixed-layers": mixed(within="model"),
    "mixed-tensor": mixed(within="model", split="tensor"),
}


@on_both
def test_every_mode_trains_a_detector(device: str, tmp_path: Path) -> None:
    """Backbone, pyramid and heads: blocks are not called one after the other, biases are added
    once, and the stage with the head takes the boxes itself."""
    team = Team(tmp_path, *FRAMES, workload="extreme-weather", device=device)
    trainings = team.train({name: (team.way(**way),) for name, way in DETECTOR.items()})
    assert {len(mine.losses) for mine, _ in trainings.values()} == {4}
    assert not apart(trainings)


EXCHANGES: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp16": {"precision": "fp16"},
    "int8": {"precision": "int8"},
    "hierarchical": {"mode": "hierarchical", "near": 2},
    "hierarchical-int8": {"mode": "hierarchical", "near": 2, "precision": "int8"},
    "torus": {"mode": "torus", "near": 2},
    "torus-fp16": {"mode": "torus", "near": 2, "precision": "fp16"},
    "ring": {"algorithm": "ring"},
    "tree": {"algorithm": "tree"},
}
"""Ways to average gradients; those with rows have four ranks, the others two."""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no accelerator")
@pytest.mark.parametrize("name", EXCHANGES)
def test_recorded_steps_of_several_ranks_train_as_launched_ones(name: str, tmp_path: Path) -> None:
    """The graph of a step has its exchange of gradients, and its error feedback."""
    exchange = EXCHANGES[name]
    team = Team(tmp_path, *team_runs.SMALL, device="cuda")
    way = {"ranks": 4 if "near" in exchange else 2, "communication": exchange}
    trainings = team.train(
        {compile: (team.way(**way, compile=compile),) for compile in ("off", "record")}
    )
    launched, recorded = (mine for mine, _ in trainings.values())
    assert len(recorded.losses) == len(launched.losses) == 20
    assert recorded.far(launched) < 1e-5  # codecs compute in fp32
    assert recorded.losses_far(launched) < 1e-5
    sent = [trained.all("exchange")[0] for trained in (launched, recorded)]
    assert sent[0] == sent[1] and sent[0]["steps"] == 20


def apart(trainings: dict[str, tuple[Trained, Trained]]) -> dict[str, str]:
    """Return the trainings that differ from their references, and by how much."""
    return {
        name: f"{mine.far(alone):.1e} {mine.losses_far(alone):.1e} {mine.quality} {alone.quality}"
        for name, (mine, alone) in trainings.items()
        if not mine.starts_as(alone)
        or not mine.far(alone) < LIMIT
        or not mine.losses_far(alone) < 1e-6  # a pipeline records them in single precision
        or mine.quality != alone.quality
    }
