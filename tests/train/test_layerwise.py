"""No step waits: what a GradScaler, a compiler and a CUDA graph meet."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer

from vflops.config import training
from vflops.train.optimizers import build, can_be_recorded, set_learning_rate

NAMES = training.Optimizer.__args__  # type: ignore[attr-defined]


def weights(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(3, 4, generator=generator, dtype=dtype).requires_grad_() for _ in range(2)]


def step(optimizer: Optimizer, parameters: list[Tensor], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    optimizer.step()


def scaled_steps(name: str, bad_step: int | None, *, fused: bool | None) -> list[Tensor]:
    """Three good steps under a GradScaler, and before one of them a step that overflows."""
    parameters = weights()
    optimizer = build(name, parameters, learning_rate=0.1, weight_decay=0.01, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=10**6)
    for k in range(3):
        if k == bad_step:
            state = copy.deepcopy(optimizer.state_dict()["state"])
            scaler.scale(sum((p * torch.inf).sum() for p in parameters)).backward()  # type: ignore[arg-type]
            scaler.step(optimizer)
            scaler.update()
            assert_same(state, optimizer.state_dict()["state"])
            optimizer.zero_grad()
        loss = sum((p * (p + k)).sum() for p in parameters)
        scaler.scale(loss).backward()  # type: ignore[arg-type]
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return [p.detach() for p in parameters]


def assert_same(before: dict[Any, Any], after: dict[Any, Any]) -> None:
    for key, state in before.items():
        assert all(torch.equal(value, after[key][name]) for name, value in state.items())


@pytest.mark.parametrize("bad_step", [0, 2])
@pytest.mark.parametrize(
    ("name", "fused"), [("sgd", None), ("sgd", True), ("lars", None), ("lamb", None)]
)
def test_a_step_that_overflows_leaves_weights_and_state(
    name: str, fused: bool | None, bad_step: int
) -> None:
    good = scaled_steps(name, None, fused=fused)
    skipped = scaled_steps(name, bad_step, fused=fused)
    assert all(torch.equal(a, b) for a, b in zip(good, skipped, strict=True))


@pytest.mark.parametrize("name", ["lars", "lamb"])
def test_a_loss_scale_changes_nothing(name: str) -> None:
    """Not a bit: a product with a power of two is exact."""
    plain = weights()
    optimizer = build(name, plain, learning_rate=0.1, weight_decay=0.01)
    for k in range(3):
        sum((p * (p + k)).sum() for p in plain).backward()  # type: ignore[union-attr]
        optimizer.step()
        optimizer.zero_grad()
    assert all(
        torch.equal(a, b) for a, b in zip(plain, scaled_steps(name, None, fused=None), strict=True)
    )


@pytest.mark.parametrize("name", ["lars", "lamb"])
def test_a_scaler_never_asks_the_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a step read a tensor on the host")

    for method in ("item", "__bool__", "__float__", "__int__", "tolist"):
        monkeypatch.setattr(Tensor, method, refuse)
    scaled_good = weights()
    optimizer = build(name, scaled_good, learning_rate=0.1)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(sum((p * p).sum() for p in scaled_good)).backward()  # type: ignore[arg-type]
    set_learning_rate(optimizer, 0.3)
    scaler.step(optimizer)
    scaler.update()


@pytest.mark.parametrize("name", ["sgd", "lars", "lamb"])
def test_a_new_learning_rate_does_not_compile_again(name: str) -> None:
    torch._dynamo.reset()
    parameters, reference = weights(torch.float64), weights(torch.float64)
    optimizer = build(name, parameters, learning_rate=0.1)
    other = build(name, reference, learning_rate=0.1)
    graphs: list[torch.fx.GraphModule] = []

    def count(graph: torch.fx.GraphModule, _: object) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(optimizer.step, backend=count, fullgraph=name != "sgd")
    for k in range(4):
        set_learning_rate(optimizer, 0.1 * k)
        set_learning_rate(other, 0.1 * k)
        step(other, reference, k)
        for p, q in zip(parameters, reference, strict=True):
            p.grad = None if q.grad is None else q.grad.clone()
        compiled()
    assert len(graphs) == 1
    for a, b in zip(parameters, reference, strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=0)


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def on_the_gpu(name: str) -> tuple[list[Tensor], Optimizer]:
    parameters = [p.detach().cuda().requires_grad_() for p in weights()]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    return parameters, build(name, parameters, learning_rate=0.1, weight_decay=0.01)


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("name", [name for name in NAMES if name != "adagrad"])  # torch's waits
def test_neither_a_step_nor_a_scaler_waits_for_the_gpu(name: str) -> None:
    parameters, optimizer = on_the_gpu(name)
    scaler = torch.amp.GradScaler("cuda")
    start = parameters[0].detach().clone()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for k in range(3):
            loss = sum((p * (torch.inf if k == 0 else 2.0)).sum() for p in parameters)
            optimizer.zero_grad()
            scaler.scale(loss).backward()  # type: ignore[arg-type]
            set_learning_rate(optimizer, 0.1 * k)
            scaler.step(optimizer)
            scaler.update()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.isfinite(parameters[0]).all()
    assert not torch.equal(parameters[0], start)


@pytest.mark.gpu
@needs_cuda
def test_adagrad_whose_rate_the_host_reads_is_not_recorded() -> None:
    assert not can_be_recorded(on_the_gpu("adagrad")[1])


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("name", [name for name in NAMES if name != "adagrad"])
def test_a_captured_step_reads_the_learning_rate_of_its_replay(name: str) -> None:
    parameters, optimizer = on_the_gpu(name)
    assert can_be_recorded(optimizer)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    before = parameters[0].detach().clone()
    for state in optimizer.state.values():  # LARS keeps what it moved by, rate and all
        state.get("velocity", torch.empty(0)).zero_()
    set_learning_rate(optimizer, 0.0)
    graph.replay()
    assert torch.isfinite(before).all()
    assert torch.equal(parameters[0], before)
    set_learning_rate(optimizer, 0.1)
    graph.replay()
    assert not torch.equal(parameters[0], before)
