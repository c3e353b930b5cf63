"""Ghost and synchronised batch norm against torch's own, over parts and over two processes."""

from __future__ import annotations

import copy
import multiprocessing
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from vflops.errors import UsageError
from vflops.interruption import run_and_end
from vflops.models.resnet import ResNet
from vflops.train.normalisation import (
    GhostBatchNorm1d,
    GhostBatchNorm2d,
    GhostBatchNorm3d,
    SynchronisedBatchNorm2d,
    average_buffers,
    convert,
)

CHANNELS = 5


def numbers(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64) * 3 + 2


def layer_of(kind: Callable[..., nn.Module], **options: Any) -> nn.Module:
    layer = kind(CHANNELS, dtype=torch.float64, **options)
    if options.get("affine", True):
        with torch.no_grad():
            layer.weight.copy_(numbers(1, CHANNELS))  # type: ignore[operator]
            layer.bias.copy_(numbers(2, CHANNELS))  # type: ignore[operator]
    return layer


def passed(layer: nn.Module, x: Tensor, gradient: Tensor) -> list[Tensor]:
    """Output, input gradient, parameter gradients, running statistics."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    out = layer(x)
    out.backward(gradient)
    assert x.grad is not None
    of_parameters = [p.grad for p in layer.parameters() if p.grad is not None]
    return [out.detach(), x.grad, *of_parameters, *layer.buffers()]


def assert_close(ours: list[Tensor], theirs: list[Tensor]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_one_ghost_is_torchs_batch_norm_to_the_bit() -> None:
    x, gradient = numbers(3, 4, CHANNELS, 3, 2), numbers(4, 4, CHANNELS, 3, 2)
    ours = passed(layer_of(GhostBatchNorm2d, ghosts=1), x, gradient)
    theirs = passed(layer_of(nn.BatchNorm2d), x, gradient)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("options", [{}, {"affine": False}, {"momentum": None}, {"eps": 0.1}])
@pytest.mark.parametrize("ghosts", [2, 3])
@pytest.mark.parametrize(
    ("ghost", "plain", "shape"),
    [
        (GhostBatchNorm1d, nn.BatchNorm1d, ()),
        (GhostBatchNorm1d, nn.BatchNorm1d, (4,)),
        (GhostBatchNorm2d, nn.BatchNorm2d, (3, 2)),
        (GhostBatchNorm3d, nn.BatchNorm3d, (3, 2, 2)),
    ],
)
def test_ghosts_are_separate_layers_whose_statistics_are_averaged(
    ghost: Any, plain: Any, shape: tuple[int, ...], ghosts: int, options: dict[str, Any]
) -> None:
    x, gradient = numbers(3, 12, CHANNELS, *shape), numbers(4, 12, CHANNELS, *shape)
    ours = passed(layer_of(ghost, ghosts=ghosts, **options), x, gradient)
    layers = [layer_of(plain, **options) for _ in range(ghosts)]
    parts = [
        passed(layer, part, of_part)
        for layer, part, of_part in zip(
            layers, x.chunk(ghosts), gradient.chunk(ghosts), strict=True
        )
    ]
    outputs = [torch.cat(column) for column in list(zip(*parts, strict=True))[:2]]
    parameters = len(list(layers[0].parameters()))
    gradients = [sum(p[2 + i] for p in parts) for i in range(parameters)]
    running = [
        sum(b.double() for b in p) / ghosts
        for p in zip(*(q[2 + parameters :] for q in parts), strict=True)
    ]
    ours[-1] = ours[-1].double()  # the number of batches
    assert_close(ours, [*outputs, *gradients, *running])  # type: ignore[list-item]


def test_evaluation_uses_running_statistics_of_the_whole() -> None:
    ghost, plain = layer_of(GhostBatchNorm2d, ghosts=2), layer_of(nn.BatchNorm2d)
    plain.load_state_dict(ghost.state_dict())
    x = numbers(5, 3, CHANNELS, 2, 2)  # three samples: no two ghosts
    assert torch.equal(ghost.eval()(x), plain.eval()(x))


def test_without_running_statistics_there_are_none_to_update() -> None:
    layer = GhostBatchNorm2d(CHANNELS, track_running_stats=False, ghosts=2)
    assert layer(torch.randn(4, CHANNELS, 2, 2)).shape == (4, CHANNELS, 2, 2)


def test_channels_last_and_halves_go_through() -> None:
    x = torch.randn(4, CHANNELS, 6, 6).to(memory_format=torch.channels_last)
    layer = GhostBatchNorm2d(CHANNELS, ghosts=2)
    assert layer(x).is_contiguous(memory_format=torch.channels_last)
    out = layer(x.bfloat16())
    assert out.dtype is torch.bfloat16
    assert out.is_contiguous(memory_format=torch.channels_last)


def test_a_batch_that_does_not_split_is_refused() -> None:
    with pytest.raises(ValueError, match="batch of 5 cannot be divided into 2 equal ghosts"):
        GhostBatchNorm2d(CHANNELS, ghosts=2)(torch.randn(5, CHANNELS, 2, 2))
    with pytest.raises(ValueError, match="1 value per channel"):
        GhostBatchNorm1d(CHANNELS, ghosts=2)(torch.randn(2, CHANNELS))


@pytest.mark.parametrize("kind", ["local", "ghost", "synchronised"])
def test_a_converted_model_has_the_same_parameters_and_state_dict(kind: str) -> None:
    model = ResNet((1, 1), classes=3, width=4).eval()
    before, names = list(model.parameters()), list(model.state_dict())
    x = torch.randn(2, 3, 32, 32)
    expected = model(x)
    converted = convert(model, kind, ghosts=2 if kind == "ghost" else 1)
    assert converted is model
    assert all(a is b for a, b in zip(before, converted.parameters(), strict=True))
    assert list(converted.state_dict()) == names
    assert torch.equal(converted(x), expected)
    assert not any(m.training for m in converted.modules())
    convert(convert(model, "ghost", ghosts=4), "local")
    assert {type(m) for m in model.modules() if isinstance(m, nn.BatchNorm2d)} == {nn.BatchNorm2d}


def test_a_lone_layer_and_a_shared_one_are_converted() -> None:
    layer = nn.BatchNorm1d(CHANNELS, eps=0.5, momentum=0.3)
    lone = convert(layer, "ghost", ghosts=2)
    assert isinstance(lone, GhostBatchNorm1d)
    assert (lone.eps, lone.momentum, lone.ghosts) == (0.5, 0.3, 2)
    both = nn.ModuleDict({"a": layer, "b": layer})
    convert(both, "ghost", ghosts=2)
    assert both["a"] is both["b"]
    assert isinstance(both["b"], GhostBatchNorm1d)


def test_what_cannot_be_converted_is_said() -> None:
    with pytest.raises(UsageError, match="kind of batch norm"):
        convert(nn.BatchNorm1d(2), "ghosts")
    with pytest.raises(ValueError, match="local batch norm has no ghosts"):
        convert(nn.BatchNorm1d(2), "local", ghosts=2)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    convolution = nn.Conv2d(2, CHANNELS, 3)
    layers = [convolution, nn.BatchNorm2d(CHANNELS), nn.ReLU(), nn.Conv2d(CHANNELS, 3, 3)]
    return nn.Sequential(*layers, nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 2)).double()


def trained(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """Outputs and gradients of two steps; the loss is a mean, so that ranks can be averaged."""
    for part in x.chunk(2):
        model.zero_grad()
        out = model(part)
        out.square().sum(1).mean().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"out": out.detach(), **gradients}


def rank_main(rank: int, folder: str) -> None:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=60),
    )
    first, second = numbers(7, 16, 2, 8, 8).chunk(2)
    mine = torch.cat([part.chunk(2)[rank] for part in (first, second)])
    results = {}
    for kind in ("synchronised", "local"):
        model = convert(network(), kind)
        result = trained(model, mine)
        for name, value in result.items():
            if name != "out":
                dist.all_reduce(value)
                value /= 2
        average_buffers(model)
        results[kind] = {**result, **dict(model.named_buffers())}
    uneven = layer_of(SynchronisedBatchNorm2d)
    x, gradient = numbers(3, 6, CHANNELS, 2, 2), numbers(4, 6, CHANNELS, 2, 2)
    mine_only = slice(0, 2) if rank == 0 else slice(2, 6)
    results["uneven"] = dict(
        zip("abcdefg", passed(uneven, x[mine_only], gradient[mine_only]), strict=False)
    )
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def other_rank(folder: str) -> int:
    rank_main(1, folder)
    return 0


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    folder: Path = tmp_path_factory.mktemp("ranks")
    spawn = multiprocessing.get_context("spawn")
    other = spawn.Process(target=run_and_end, args=(other_rank, str(folder)))
    other.start()
    rank_main(0, str(folder))  # this process is a rank too, which saves an import of torch
    other.join(60)
    assert other.exitcode == 0
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize(("kind", "alone"), [("synchronised", "local"), ("local", "ghost")])
def test_two_ranks_compute_what_one_does_with_the_whole_batch(
    two_ranks: list[dict[str, dict[str, Tensor]]], kind: str, alone: str
) -> None:
    model = convert(network(), alone, ghosts=2 if alone == "ghost" else 1)
    expected = trained(model, numbers(7, 16, 2, 8, 8))
    expected |= dict(model.named_buffers())
    first, second = (results[kind] for results in two_ranks)
    assert_close([torch.cat([first.pop("out"), second.pop("out")])], [expected.pop("out")])
    for name, value in expected.items():
        assert_close([first[name], second[name]], [value, value])


def test_ranks_with_uneven_shares_are_weighted_by_their_samples(
    two_ranks: list[dict[str, dict[str, Tensor]]],
) -> None:
    x, gradient = numbers(3, 6, CHANNELS, 2, 2), numbers(4, 6, CHANNELS, 2, 2)
    out, dx, dw, db, *running = passed(layer_of(nn.BatchNorm2d), x, gradient)
    parts = [list(results["uneven"].values()) for results in two_ranks]
    joined = [torch.cat([p[i] for p in parts]) for i in (0, 1)]
    summed = [parts[0][i] + parts[1][i] for i in (2, 3)]
    assert_close([*joined, *summed, *parts[0][4:]], [out, dx, dw, db, *running])


def test_one_process_needs_no_group() -> None:
    model = convert(network(), "synchronised")
    expected = trained(copy.deepcopy(convert(network(), "local")), numbers(7, 4, 2, 8, 8))
    ours = trained(model, numbers(7, 4, 2, 8, 8))
    average_buffers(model)
    assert all(torch.equal(ours[name], expected[name]) for name in expected)


def test_ghosts_are_one_graph_to_a_compiler() -> None:
    x, gradient = numbers(3, 8, CHANNELS, 4, 4), numbers(4, 8, CHANNELS, 4, 4)
    compiled = layer_of(GhostBatchNorm2d, ghosts=2)
    compiled.compile(fullgraph=True, backend="aot_eager")
    assert_close(
        passed(compiled, x, gradient), passed(layer_of(GhostBatchNorm2d, ghosts=2), x, gradient)
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_ghosts_on_a_gpu_are_those_of_the_cpu_compiled_or_not() -> None:
    x, gradient = numbers(3, 8, CHANNELS, 4, 4), numbers(4, 8, CHANNELS, 4, 4)
    expected = passed(layer_of(GhostBatchNorm2d, ghosts=2), x, gradient)
    eager = layer_of(GhostBatchNorm2d, ghosts=2).cuda()
    compiled = layer_of(GhostBatchNorm2d, ghosts=2).cuda()
    compiled.compile(fullgraph=True)
    x, gradient = x.cuda(), gradient.cuda()
    state = copy.deepcopy(compiled.state_dict())
    passed(compiled, x, gradient)  # compiling may wait; what it makes may not
    compiled.load_state_dict(state)
    compiled.zero_grad(set_to_none=True)
    torch.cuda.set_sync_debug_mode("error")
    try:
        results = [passed(layer, x, gradient) for layer in (eager, compiled)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for result in results:
        assert_close([tensor.cpu() for tensor in result], expected)
