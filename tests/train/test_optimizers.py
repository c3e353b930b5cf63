"""What is decayed, how the learning rate changes, how a state is resumed."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vflops.config import training
from vflops.errors import UsageError
from vflops.models.resnet import ResNet
from vflops.train.eager import eager
from vflops.train.optimizers import build, parameter_groups, set_learning_rate

NAMES = training.Optimizer.__args__  # type: ignore[attr-defined]


def weights(seed: int = 0, *, layers: int = 2, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(3, 4, generator=generator, dtype=dtype).requires_grad_() for _ in range(layers)
    ]


def step(optimizer: Optimizer, parameters: list[Tensor], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    optimizer.step()


def test_norm_layers_and_biases_are_neither_decayed_nor_adapted() -> None:
    model = ResNet((1, 1), classes=3, width=4)
    decayed, other = parameter_groups(model, 3e-5)
    assert (decayed["weight_decay"], decayed["adapt"]) == (3e-5, True)
    assert (other["weight_decay"], other["adapt"]) == (0.0, False)
    assert all(p.dim() > 1 for p in decayed["params"])
    assert all(p.dim() == 1 for p in other["params"])
    together = {id(p) for group in (decayed, other) for p in group["params"]}
    assert together == {id(p) for p in model.parameters()}


@pytest.mark.parametrize("norm", [nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.RMSNorm(4)])
def test_every_kind_of_norm_counts(norm: nn.Module) -> None:
    (only,) = parameter_groups(norm, 0.1)
    assert only["weight_decay"] == 0.0


def test_frozen_parameters_are_left_out_and_shared_ones_taken_once() -> None:
    shared, frozen = nn.Linear(2, 2, bias=False), nn.Linear(2, 2).requires_grad_(False)
    twin = nn.Linear(2, 2, bias=False)
    twin.weight = shared.weight
    (only,) = parameter_groups(nn.Sequential(shared, frozen, twin), 0.1)
    assert len(only["params"]) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_learning_rate_of_zero_leaves_the_weights_and_a_new_one_counts(name: str) -> None:
    parameters = weights()
    before = [p.detach().clone() for p in parameters]
    optimizer = build(name, parameters, learning_rate=0.5)
    set_learning_rate(optimizer, 0.0)
    step(optimizer, parameters, 1)
    assert all(torch.equal(p, old) for p, old in zip(parameters, before, strict=True))
    set_learning_rate(optimizer, 0.5)
    step(optimizer, parameters, 2)
    assert not any(torch.equal(p, old) for p, old in zip(parameters, before, strict=True))


def test_a_plain_number_can_be_set_as_well() -> None:
    optimizer = torch.optim.SGD(weights(), lr=0.1)
    set_learning_rate(optimizer, 0.2)
    assert optimizer.param_groups[0]["lr"] == 0.2


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("sgd", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
        ("adam", lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.01)),
        ("adagrad", lambda p: torch.optim.Adagrad(p, 0.1, weight_decay=0.01)),
    ],
)
@pytest.mark.parametrize("fused", [None, True])
def test_torchs_optimizers_are_torchs(name: str, theirs: Any, fused: bool | None) -> None:
    ours, reference = weights(dtype=torch.float64), weights(dtype=torch.float64)
    optimizer = build(
        name,
        ours,
        learning_rate=0.1,
        weight_decay=0.01,
        nesterov=name == "sgd",
        fused=fused,
    )
    other = theirs(reference)
    for seed in range(5):
        step(optimizer, ours, seed)
        step(other, reference, seed)
    for a, b in zip(ours, reference, strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_groups_keep_their_own_decay(name: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    optimizer = build(name, parameter_groups(model, 0.1), learning_rate=0.1, weight_decay=0.7)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_is_bit_identical_from_a_file(name: str) -> None:
    straight = weights()
    optimizer = build(name, straight, learning_rate=0.1, weight_decay=0.01)
    for seed in range(3):
        step(optimizer, straight, seed)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    resumed = [p.detach().clone().requires_grad_() for p in straight]
    again = build(name, resumed, learning_rate=0.9)
    home = again.param_groups[0]["lr"]
    file.seek(0)
    again.load_state_dict(torch.load(file, weights_only=True))
    assert again.param_groups[0]["lr"] is home, "a graph that reads this tensor would not see it"
    for seed in range(3, 6):
        step(optimizer, straight, seed)
        step(again, resumed, seed)
    assert all(torch.equal(a, b) for a, b in zip(straight, resumed, strict=True))


@pytest.mark.parametrize("name", ["sgd", "adam", "adagrad"])
def test_a_state_from_other_kernels_is_continued_with_ones_own(name: str) -> None:
    theirs, ours = weights(), weights()
    fused = build(name, theirs, learning_rate=0.1, fused=True)
    plain = build(name, ours, learning_rate=0.7)
    step(fused, theirs, 0)
    plain.load_state_dict(fused.state_dict())
    assert not plain.param_groups[0]["fused"]
    assert fused.param_groups[0]["fused"]
    assert float(plain.param_groups[0]["lr"]) == 0.1
    step(plain, ours, 1)


def test_an_unknown_optimizer_gets_a_suggestion() -> None:
    with pytest.raises(UsageError) as error:
        build("adagard", weights(), learning_rate=0.1)
    assert error.value.hint == "did you mean adagrad or adam or adamw?"


def test_a_state_of_other_groups_is_refused() -> None:
    one, two = weights()
    saved = build("sgd", [{"params": [one]}, {"params": [two]}], learning_rate=0.1).state_dict()
    with pytest.raises(ValueError, match="different number of parameter groups"):
        build("sgd", [one, two], learning_rate=0.1).load_state_dict(saved)


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="parameters is empty"):
        build("lars", parameter_groups(nn.ReLU(), 0.1), learning_rate=0.1)


def test_nesterov_is_for_sgd() -> None:
    with pytest.raises(UsageError, match="lars has no Nesterov"):
        build("lars", weights(), learning_rate=0.1, nesterov=True)


@pytest.mark.parametrize("name", ["adam", "adagrad", "lamb"])
def test_squares_of_gradients_are_not_kept_in_halves(name: str) -> None:
    halves = [torch.zeros(2, dtype=torch.float16, requires_grad=True)]
    with pytest.raises(UsageError, match="state in fp16") as error:
        build(name, halves, learning_rate=0.1)
    assert "mixed-fp16" in (error.value.hint or "")


def test_a_step_does_not_import_the_compiler() -> None:
    code = """
import sys, torch
from vflops.config import training
from vflops.train.optimizers import _has_fused, build
for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.Adagrad):
    assert _has_fused(kind, [{"params": [torch.ones(2)]}])  # accelerators are asked this
for name in training.Optimizer.__args__:
    weights = [torch.ones(2, requires_grad=True)]
    optimizer = build(name, weights, learning_rate=0.1)
    weights[0].sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
    print(name, weights[0].grad, "torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{name} None False" for name in NAMES]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.Adagrad])
def test_a_step_without_the_compiler_is_torchs_own(kind: type[Optimizer]) -> None:
    trained = []
    for optimizer_type in (kind, eager(kind)):
        parameters = weights()
        optimizer = optimizer_type(parameters, lr=0.1, weight_decay=0.01)  # type: ignore[call-arg]
        for seed in range(3):
            step(optimizer, parameters, seed)
        trained.append(parameters)
    assert all(torch.equal(a, b) for a, b in zip(*trained, strict=True))
