"""A model whose large tensors are computed later has the bits of one that is built as usual."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from tests.support.torch_memory import peak_bytes
from vflops.models.language.transformer import Transformer
from vflops.models.language.transformer_design import TransformerDesign
from vflops.models.resnet import ResNet
from vflops.train.deferred_build import SeenOnHost
from vflops.train.initial_model import can_be_deferred, initial_model
from vflops.workloads.contract.workload import Workload

CPU = torch.device("cpu")
GPT = TransformerDesign(
    layers=2, width=128, heads=4, kv_heads=4, mlp_width=512, vocabulary=1001, context=64
)
LLAMA = replace(GPT, style="llama", kv_heads=2, tied=False)

Build = Callable[[], nn.Module]


class Given:
    """As much of a workload as builds a model."""

    def __init__(self, model: Build, arrays: Any = None) -> None:
        self.model, self._arrays = model, arrays

    def initial_weights(self, seed: int) -> Any:
        return self._arrays


class Constructor(nn.Module):
    """What constructors of plugins do."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.Linear(100, 100)
        self.copies = nn.ModuleList([copy.deepcopy(layer) for _ in range(2)])
        nn.init.orthogonal_(layer.weight)
        self.layer = layer
        self.padded = nn.Embedding(1000, 50, padding_idx=3)
        self.tied = nn.Linear(50, 1000, bias=False)
        self.tied.weight = self.padded.weight
        self.register_buffer("table", torch.arange(9000.0).view(90, 100).t(), persistent=False)
        self.rates = [rate.item() for rate in torch.linspace(0, 0.1, 12)]
        own = torch.Generator().manual_seed(3)
        self.scaled = nn.Parameter(torch.randn(80, 80, generator=own) * 0.1)
        self.derived = nn.Parameter(torch.randn_like(self.scaled).cumsum(0))
        self.recurrent = nn.LSTM(64, 64)
        self.drop = nn.Parameter(torch.rand(5000).bernoulli_(0.5), requires_grad=False)
        self.slope = nn.utils.parametrizations.weight_norm(nn.Linear(90, 90))


class ReadsValues(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(100, 100))
        self.scale = self.weight.detach().abs().max().item()


class KeepsTensor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.table = nn.Linear(100, 100), [torch.randn(100, 100)]


class DrawsByValue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.poisson(torch.rand(100, 100)))


def differences(build: Build) -> tuple[bool, list[str]]:
    """Return whether the model was deferred, and which of its tensors differ."""
    torch.manual_seed(5)
    usual, later = build(), torch.rand(3)
    torch.manual_seed(5)
    model, weights = initial_model(cast(Workload, Given(build)), seed=1)
    assert torch.equal(torch.rand(3), later), "other random numbers follow"
    deferred = all(tensor.is_meta for tensor in named(model).values())
    for part in (*model.children(), model):
        weights.fill(model, CPU, within=part)
    assert torch.equal(torch.rand(1), (torch.manual_seed(5), build(), torch.rand(4))[2][3:])
    expected, found = named(usual), named(model)
    assert expected.keys() == found.keys()
    return deferred, [name for name in expected if not same(expected[name], found[name])]


def named(model: nn.Module) -> dict[str, Tensor]:
    return dict([*model.named_parameters(remove_duplicate=False), *model.named_buffers()])


def same(one: Tensor, other: Tensor) -> bool:
    layout = one.dtype == other.dtype and one.stride() == other.stride()
    kind = type(one) is type(other) and one.requires_grad == other.requires_grad
    return layout and kind and torch.equal(one, other)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Transformer(GPT),
        lambda: Transformer(LLAMA),
        lambda: Transformer(replace(GPT, experts=4)),
        lambda: Transformer(GPT).double(),
        lambda: ResNet((1, 1), width=64),
        Constructor,
    ],
    ids=["gpt2", "llama", "experts", "double", "resnet", "plugin"],
)
def test_deferred_weights_have_the_same_bits(build: Build) -> None:
    assert can_be_deferred(build)
    assert differences(build) == (True, [])


@pytest.mark.parametrize("build", [ReadsValues, KeepsTensor, DrawsByValue])
def test_other_models_are_built_as_usual(build: Build) -> None:
    assert not can_be_deferred(build)
    assert differences(build) == (False, [])


def test_code_that_asks_sees_host_memory() -> None:
    """``nn.init.orthogonal_`` draws nothing on the meta device, so it must not see that."""
    tensor = torch.empty(3, device="meta")
    with SeenOnHost():
        assert (tensor.is_meta, tensor.is_cpu, tensor.device) == (False, True, CPU)
    assert tensor.is_meta


def test_given_arrays_take_the_place_of_drawn_weights() -> None:
    arrays = {"weight": torch.rand(90, 80).numpy(), "bias": torch.rand(90).numpy()}
    given = Given(lambda: nn.Linear(80, 90).double(), arrays)
    model, weights = initial_model(cast(Workload, given), seed=1)
    weights.fill(model, CPU, lambda name, whole: whole[:30])
    assert {name: (len(t), t.dtype) for name, t in model.state_dict().items()} == dict.fromkeys(
        arrays, (30, torch.float64)
    )
    assert torch.equal(
        model.state_dict()["weight"].float(), torch.from_numpy(arrays["weight"])[:30]
    )
    with pytest.raises(RuntimeError, match="Missing key"):
        initial_model(cast(Workload, Given(given.model, {"weight": arrays["weight"]})), seed=1)


def test_a_part_needs_its_memory_and_that_of_the_largest_tensor() -> None:
    """The whole of this model is 24 of its largest tensor."""
    largest = 4 * 512 * 512

    def build() -> nn.Module:
        return nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(24)))

    def build_part() -> nn.Module:
        model, weights = initial_model(cast(Workload, Given(build)), seed=1)
        weights.fill(model, CPU, lambda name, whole: whole[:128])
        return model

    assert peak_bytes(build) >= 24 * largest
    assert peak_bytes(build_part) <= (6 + 1.3) * largest  # and states of random numbers
