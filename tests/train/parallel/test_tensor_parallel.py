"""Tensor parallelism: what is divided, and what cannot be; test_modes trains so."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.support.train_runs import planned
from vflops.config.training import TrainSettings
from vflops.errors import UsageError
from vflops.machine.system import cpu_share
from vflops.models.resnet import ResNet
from vflops.train.layerwise import norms
from vflops.train.parallel.channel_pairs import check_pairs
from vflops.train.parallel.divided import Division
from vflops.train.parallel.tensor_parallel import TensorParallel
from vflops.workloads.contract.workload import Workload

TENSOR = ("train.parallel.mode=model", "train.parallel.split=tensor")


def test_the_norm_of_a_layer_is_that_of_all_its_channels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if another rank had as much of each pair: LARS and LAMB take these norms."""
    cpu = torch.device("cpu")
    plan = TensorParallel(0, 1, cpu, f"file://{tmp_path / 'store'}", TrainSettings())
    try:
        model = plan.place(ResNet((1,), width=4), cast(Workload, None), cpu)
        names, weights = zip(*model.named_parameters(), strict=True)
        plain = torch.stack([weight.detach().norm() for weight in weights])
        monkeypatch.setattr(dist, "all_reduce", lambda squares, group: squares.mul_(2))
        ratios = norms([weight.detach() for weight in weights], weights) / plain
    finally:
        plan.close()
    divided = {name for name, ratio in zip(names, ratios, strict=True) if 1.41 < ratio < 1.42}
    pair = {"conv1.weight", "bn1.weight", "conv2.weight"}  # the norm of bn1.bias is zero
    assert divided == {f"stages.0.0.{name}" for name in pair}


def test_channels_that_ranks_do_not_divide_are_refused_with_numbers_that_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_share, "usable_cores", lambda: [0, 1, 2])
    with pytest.raises(UsageError, match="3 ranks cannot share the 8 channels of stages"):
        planned(tmp_path, *TENSOR, "train.ranks=3", "train.batch=33")
    with pytest.raises(UsageError) as refused:
        check_pairs(ResNet((1,), width=12), 5, "mine")
    assert "2, 3, 4, 6, 12 ranks" in str(refused.value.hint)


def test_heads_that_ranks_do_not_divide_are_refused_with_numbers_that_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_share, "usable_cores", lambda: [0, 1, 2, 3])
    with pytest.raises(UsageError, match="3 ranks cannot share the 4 heads of layers") as refused:
        planned(tmp_path, *TENSOR, "train.ranks=3", workload="language-model")
    assert "2, 4 ranks" in str(refused.value.hint)
    few = (*TENSOR, "train.ranks=4", "network.kv_heads=2")
    with pytest.raises(UsageError, match="4 ranks cannot share the 2 kv_heads of") as refused:
        planned(tmp_path, *few, workload="language-model")
    assert "use 2 ranks" in str(refused.value.hint)


def test_a_part_of_sections_has_a_piece_of_each_and_is_assembled_again() -> None:
    """Sections of 6, 3 and 0 rows on two ranks; the second has the smaller piece."""
    division, whole = Division(0, (6, 3, 0)), torch.arange(9)
    parts = [division.part(whole, number, 2) for number in range(2)]
    assert [part.tolist() for part in parts] == [[0, 1, 2, 6, 7], [3, 4, 5, 8]]
    padded: list[torch.Tensor] = []

    def note(own: torch.Tensor) -> torch.Tensor:
        padded.append(own)
        return torch.stack([own] * 2)

    for number, part in enumerate(parts):
        division.assemble(part, number, 2, note)
    assert division.assemble(parts[0], 0, 2, lambda _: torch.stack(padded)).tolist() == [*range(9)]


def test_a_model_that_names_no_pairs_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing in the model of mine can be divided") as refused:
        check_pairs(nn.Linear(4, 4), 2, "mine")
    assert "split=layers" in str(refused.value.hint)
