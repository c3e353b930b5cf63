"""The profile ``aiperf``: table IV as settings, and its recipe in the log of a real search."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.automl_workers import concluded, planned, planned_replay, worked
from vflops.cli.train.data import image_data
from vflops.config.flatten import flatten
from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import Evaluated, Finished
from vflops.results.check.rule_sets import rule_set_of
from vflops.train.schedules import learning_rate
from vflops.workloads.automl.architecture.module_builder import build
from vflops.workloads.automl.architecture.starting_networks import small
from vflops.workloads.automl.proposer import first_network
from vflops.workloads.automl.replay import SearchLedger
from vflops.workloads.automl.search_events import CandidateBegun
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import load, profile

TABLE_IV: dict[str, object] = {
    "size": 224,
    "label_smoothing": 0.0,
    "network.blocks": [3, 4, 6, 3],
    "network.width": 64,
    "network.stem": "imagenet",
    "train.epochs": 60,
    "train.batch": 448,
    "train.optimizer": "sgd",
    "train.momentum": 0.9,
    "train.nesterov": False,
    "train.learning_rate": 0.1,
    "train.linear_scaling": False,
    "train.warmup_epochs": 0.0,
    "train.schedule": "polynomial",
    "train.power": 1.0,
    "train.end_rate": 0.0,
    "train.schedule_epochs": 60,
    "train.stop_by": "loss",
    "train.precision": "mixed-fp16",
    "train.parallel.mode": "data",
    "train.communication.mode": "all-reduce",
    "search.searcher": "bayesian",
    "search.tune_from": 5,
    "search.tuning": "separate",
    "search.v1": True,
    "search.inherit": False,
    "search.order": "free",
    "search.error": 0.3,
    "search.duration_s": 3600.0,
}
SCALED_DOWN = (
    "size=16",
    "resize=16",
    "augment=shift",
    "network.blocks=[1,1,1]",
    "network.width=8",
    "network.stem=small",
    "synthetic.classes=4",
    "synthetic.size=16",
    "synthetic.train=64",
    "synthetic.validation=60",
    "train.batch=16",
    "train.epochs=16",
    "train.schedule_epochs=16",
    "train.precision=fp32",
    "search.candidates=2",
    "search.limits.parameters=300000",
)
"""The same recipe on 64 images of 16 pixels: 16 epochs of four steps instead of 60."""


def aiperf(*assignments: str) -> Settings:
    return load(profile("aiperf", ["automl"]), None, assignments)


def train(*assignments: str) -> dict[str, Any]:
    section: dict[str, Any] = aiperf(*assignments).workloads["automl"]["train"]
    return section


def test_the_profile_has_every_default_of_table_iv() -> None:
    settings = aiperf()
    flat = flatten(settings.workloads["automl"])
    assert {name: flat[name] for name in TABLE_IV} == TABLE_IV
    assert rule_set_of(settings).name == "aiperf"


def test_the_rate_is_half_way_down_after_half_of_the_60_epochs() -> None:
    settings = train()
    rates = [
        learning_rate(
            settings["schedule"],
            step=epoch * 2860,
            steps=settings["schedule_epochs"] * 2860,
            warmup_steps=0,
            peak=settings["learning_rate"],
            power=settings["power"],
            end=settings["end_rate"],
        )
        for epoch in (0, 15, 30, 45, 60)
    ]
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025, 0.0], rel=1e-12)


def test_its_first_network_is_resnet50_with_strides_in_the_1x1_convolutions() -> None:
    settings = AutomlSettings.model_validate(aiperf().workloads["automl"])
    data: Any = type("Data", (), {"facts": {"classes": 1000}})
    network = first_network(settings, data)
    strided = {
        layer.kernel for layer in network.layers if layer.kind == "conv" and layer.stride > 1
    }
    assert strided == {1, 7}
    assert network.parameters == 25_557_032


def test_new_convolutions_have_the_variance_of_he_et_al() -> None:
    """Equation 14 of their paper: 2 / (outputs × kernel area), with a normal distribution."""
    network = build(small("laptop", (3, 32, 32)), torch.Generator().manual_seed(1))
    convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    large = [module for module in convolutions if module.weight.numel() >= 4096]
    assert large
    for module in large:
        outputs, _, height, width = module.weight.shape
        scaled = module.weight.detach().double() / math.sqrt(2 / (outputs * height * width))
        error = 1 / math.sqrt(scaled.numel())
        assert abs(float(scaled.mean())) < 5 * error
        assert abs(float(scaled.var()) - 1) < 5 * math.sqrt(2) * error
        kurtosis = float((scaled**4).mean())  # 3 of a normal, 1.8 of a uniform distribution
        assert abs(kurtosis - 3) < 6 * math.sqrt(96) * error


@pytest.mark.parametrize(
    ("assignments", "batch"),
    [
        ([], 448),
        (["train.ranks=8"], 3584),
        (["automl.train.ranks=3"], 1344),
        (["train.ranks=8", "train.batch=448"], 448),
        (["train.ranks=8", "workloads.automl.train.batch=512"], 512),
        (["train.batch_per_rank=64", "train.ranks=2"], 128),
        (["train.batch_per_rank=64", "train.ranks=2", "train.batch=128"], 128),
    ],
)
def test_the_batch_is_448_an_accelerator_unless_it_is_given(
    assignments: list[str], batch: int
) -> None:
    found = train(*assignments)
    assert (found["batch"], found["batch_per_rank"]) == (batch, None)


def test_a_batch_that_contradicts_the_batch_per_rank_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"train.batch is 99, but .* 64 × 2 ranks is 128"
    ) as caught:
        train("train.batch_per_rank=64", "train.ranks=2", "train.batch=99")
    assert caught.value.hint == "set only one of them"
    with pytest.raises(UsageError, match=r"batch_per_rank = 0"):
        train("train.batch_per_rank=0")


def test_a_run_keeps_its_batch_when_its_ranks_change() -> None:
    settings = aiperf("train.ranks=8")
    assert load(settings, None, ["train.ranks=4"]).workloads["automl"]["train"]["batch"] == 3584


@pytest.mark.parametrize("name", ["image-classification", "extreme-weather", "command"])
def test_other_workloads_refuse_the_profile(name: str) -> None:
    with pytest.raises(UsageError, match="is for automl only") as caught:
        profile("aiperf", [name])
    assert str(caught.value.hint).startswith("vflops run automl --profile aiperf; ")
    assert "aiperf" not in workload(name).profiles


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Two rounds: candidates of at most 4 and 8 of the 16 epochs."""
    folder = tmp_path_factory.mktemp("aiperf")
    return concluded(worked(planned(folder, *SCALED_DOWN, of_profile="aiperf")))


def evaluations(folder: RunFolder) -> list[list[Evaluated]]:
    """Return the evaluations of each candidate."""
    found: list[list[Evaluated]] = []
    for event in (event for log in folder.job_history(1) for event in log.events):
        if event.kind == "candidate":
            found.append([])
        elif event.kind == "evaluation":
            found[-1].append(event.payload(Evaluated))
    return found


def test_the_rate_falls_on_one_line_over_all_epochs_whatever_the_round(search: RunFolder) -> None:
    first, second = evaluations(search)
    assert len(first) <= 4 and len(second) <= 8
    for point in (*first[:-1], *second[:-1]):
        assert point.learning_rate == pytest.approx(0.1 * (1 - point.epoch / 16), rel=1e-12)
    last = first[-1]  # the rate of the last step, if the candidate used all of its epochs
    if len(first) == 4:
        assert last.learning_rate == pytest.approx(0.1 * (1 - 15 / 64), rel=1e-12)


def test_candidates_stop_by_the_loss_and_start_from_new_weights(search: RunFolder) -> None:
    begun = [event.payload(CandidateBegun) for event in search.history().events("candidate")]
    assert [item.inherited for item in begun] == [False, False]
    finished = [event.payload(Finished) for event in search.history().events("finished")]
    patience = [row.candidate.patience for row in SearchLedger.find(search.path).candidates]
    assert patience == [2, 3]
    for points, done, limit, epochs in zip(
        evaluations(search), finished, patience, (4, 8), strict=True
    ):
        losses = [point.loss for point in points]
        assert None not in losses
        since_best = len(losses) - 1 - losses.index(min(losses))  # type: ignore[type-var]
        stopped = since_best == limit
        assert done.reason == ("patience" if stopped else "epochs")
        assert stopped or (len(losses) == epochs and since_best < limit)  # type: ignore[operator]


def test_a_replay_stops_where_the_search_stopped(search: RunFolder, tmp_path: Path) -> None:
    again = worked(planned_replay(tmp_path, search.path))
    fields = {"step", "quality", "loss", "learning_rate"}
    told, repeated = (
        [[point.model_dump(include=fields) for point in points] for points in evaluations(folder)]
        for folder in (search, again)
    )
    assert told == repeated


def test_the_end_rate_must_be_reached_from_above_with_the_smallest_batch() -> None:
    with pytest.raises(UsageError, match=r"more than 0.05, .* with a batch of 128"):
        train("train.linear_scaling=true", "train.batch=256", "train.end_rate=0.06")


def test_images_are_packed_for_the_profile_and_then_searched_on() -> None:
    assert image_data._recipe("aiperf").resize == 256
    command = image_data._training(Path("packed"), "aiperf")
    assert command == "vflops run automl --profile aiperf --data packed"
