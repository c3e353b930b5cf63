"""The footprint of a rank in each mode, computed before ranks start, equals what they keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from vflops.config.training import TrainSettings
from vflops.counting.capture import InputSpec
from vflops.counting.meta_device import on_meta
from vflops.models.language.transformer import Transformer
from vflops.models.language.transformer_design import PUBLISHED, TransformerDesign
from vflops.models.resnet import ResNet
from vflops.train.objective import Objective
from vflops.train.parallel.cut import cut
from vflops.train.parallel.factory import parallel_plan
from vflops.train.parallel.feasibility import footprint
from vflops.train.parallel.footprint import MODEL_STATE, Footprint
from vflops.train.parallel.stages import keep_only
from vflops.train.precision import Precision
from vflops.workloads.contract.workload import Workload


class Given:
    """As much of a workload as is asked for."""

    model_inputs = 1

    def __init__(self, model: Any, *shape: int) -> None:
        self.model, self._shape = model, shape

    def input_specs(self) -> tuple[InputSpec, ...]:
        return (InputSpec(self._shape),)


class Mlp(nn.Module):
    """Two blocks with a pair each, a frozen one, and a layer in none."""

    channel_pairs = (("blocks.0.0", "blocks.0.1"), ("blocks.1.0", "blocks.1.1"))

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([self._block(3, 4), self._block(3, 10), nn.Linear(3, 3)])
        self.blocks[2].requires_grad_(False)
        self.last = nn.Linear(3, 5, bias=False)

    @staticmethod
    def _block(width: int, channels: int) -> nn.Module:
        block = nn.Module()
        block.add_module("0", nn.Linear(width, channels, bias=False))
        block.add_module("1", nn.Linear(channels, width))
        return block


def small() -> ResNet:
    return ResNet((1, 2), classes=5, width=8, stem="small")


def trained(ranks: int, accumulate: int = 1, **parallel: Any) -> TrainSettings:
    return TrainSettings(ranks=ranks, batch=64, accumulate=accumulate, parallel=parallel)


def kept(model: Any, settings: TrainSettings) -> Footprint:
    return footprint(cast(Workload, Given(model, 3, 16, 16)), "mine", settings)


FIRST, SECOND, LAST = 12 + 12 + 3, 30 + 30 + 3, 15


def test_of_data_parallel_ranks_each_has_all_that_is_trained() -> None:
    assert kept(Mlp, trained(2)) == Footprint(FIRST + SECOND + LAST)


def test_a_sharded_rank_has_rows_of_all_and_a_block_of_others() -> None:
    """The rows of the first rank, which has the one more where they are not even."""
    footprint = kept(Mlp, trained(2, mode="sharded"))
    first, second, last = 2 * 3 + 2 * 4 + 2, 5 * 3 + 2 * 10 + 2, 3 * 3
    gathered = LAST + SECOND
    assert (footprint.parameters, footprint.gathered) == (first + second + last, 2 * gathered)
    parts = kept(Mlp, trained(2, accumulate=2, mode="sharded"))
    assert parts.gathered == gathered + (FIRST + SECOND + LAST)
    assert footprint.description.startswith(f"1/2 of {MODEL_STATE}")


class Truncated(nn.Module):
    """Draws again what is out of bounds, so that a rank cannot compute its part alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(100, 100, bias=False)
        drawn = torch.randn(100, 100)
        if not drawn.is_meta and drawn.abs().max() > 3:
            drawn = torch.randn(100, 100)
        self.layer.weight.data.copy_(drawn)


def test_the_whole_model_counts_if_each_rank_builds_it() -> None:
    many = kept(Truncated, trained(8, mode="sharded"))
    assert many.description.endswith("after each rank has built the whole model")
    assert many.built == 10_000
    few = Footprint(1000, 2000, built=10_000)
    assert (few.numbers(1), few.numbers(9)) == (10_000, 13_000)
    assert kept(Mlp, trained(8, mode="sharded")).built == 0


@pytest.mark.parametrize("mesh", [None, [2, 2]])
def test_ranks_that_divide_channels_have_a_part_of_each_pair(mesh: list[int] | None) -> None:
    within = {"mode": "mixed", "mesh": mesh, "within": "model"} if mesh else {"mode": "model"}
    footprint = kept(Mlp, trained(4 if mesh else 2, split="tensor", **within))
    assert footprint.parameters == (12 + 12) // 2 + 3 + (30 + 30) // 2 + 3 + LAST
    assert footprint.description == f"{MODEL_STATE}, with 1/2 of paired layers"


class Text(Given):
    """Tokens and the tokens that follow them."""

    model_inputs = 2

    def input_specs(self) -> tuple[InputSpec, ...]:
        return (InputSpec(self._shape, "int64"),) * 2


def language() -> Transformer:
    return Transformer(
        TransformerDesign(
            layers=2, width=16, heads=4, kv_heads=4, mlp_width=64, vocabulary=65, context=8
        )
    )


def test_a_tied_weight_is_on_two_stages_and_rows_are_divided() -> None:
    given = cast(Workload, Text(language, 8))
    settings = trained(2, accumulate=2, mode="pipeline")
    left = [keep_only(language(), [item]).parameters() for item in cut(given, settings)]
    sizes = [sum(item.numel() for item in parameters) for parameters in left]
    whole = sum(item.numel() for item in language().parameters())
    assert sum(sizes) == whole + 65 * 16
    assert footprint(given, "mine", settings).parameters == max(sizes)
    divided = footprint(given, "mine", trained(2, mode="model", split="tensor"))
    layers = 2 * (4 * 16 * 16 + 2 * 16 * 64)
    assert divided.parameters == whole - layers // 2 - 32 * 16  # of 65 rows, one rank has 33


MIXTRAL = replace(PUBLISHED["mixtral-8x7b"], layers=4)
"""An eighth of its layers; 24 GB in fp32, so the model stays on the meta device."""


@pytest.mark.parametrize("number", [0, 7])
@pytest.mark.parametrize("parallel", [{"mode": "sharded"}, {"mode": "model", "split": "tensor"}])
def test_one_of_eight_ranks_keeps_what_is_planned(
    parallel: dict[str, Any], number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other ranks exist only for a process group that sends nothing."""
    join = dist.init_process_group

    def join_alone(backend: str, *, rank: int, world_size: int, **options: Any) -> None:
        join("fake", rank=rank, world_size=world_size, store=FakeStore())

    monkeypatch.setattr(dist, "init_process_group", join_alone)
    given = cast(Workload, Text(lambda: Transformer(MIXTRAL), 8))
    settings, cpu = trained(8, **parallel), torch.device("cpu")
    plan = parallel_plan(number, 8, cpu, f"file://{tmp_path / 'store'}", settings)
    try:
        model = plan.place(on_meta(given.model, "mine"), given, torch.device("meta"))
        plan.wrap(Objective(model, given, Precision.named("fp32", cpu)))
        kept = sum(plan.part(weight).numel() for weight in model.parameters())
    finally:
        plan.close()
    assert kept == footprint(given, "mine", settings).parameters


@pytest.mark.parametrize(
    "parallel",
    [
        {"mode": "model"},
        {"mode": "pipeline"},
        {"mode": "pipeline", "schedule": "interleaved"},
        {"mode": "mixed", "mesh": [2, 2]},
    ],
    ids=lambda item: "-".join(map(str, item.values())),
)
def test_a_rank_of_a_pipeline_has_its_stages(parallel: dict[str, Any]) -> None:
    """The largest part that remains when a rank drops the other stages."""
    settings = trained(4 if "mesh" in parallel else 2, accumulate=2, **parallel)
    cuts = cut(cast(Workload, Given(small, 3, 16, 16)), settings)
    left = [keep_only(small(), cuts[rank::2]).parameters() for rank in range(2)]
    sizes = [sum(item.numel() for item in parameters) for parameters in left]
    assert sum(sizes) == sum(item.numel() for item in small().parameters())
    footprint = kept(small, settings)
    assert (footprint.parameters, footprint.gathered) == (max(sizes), 0)
    assert ("stages" if len(cuts) == 4 else "stage,") in footprint.description
