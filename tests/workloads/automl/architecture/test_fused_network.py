"""The fused step of a candidate gives the gradients and running statistics of the plain network."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.triton_kernels import DEVICE, GPU, INTERPRETED, kernel_test
from vflops.models.fused_trunk import FusedTrunk
from vflops.workloads.automl.architecture import morphs
from vflops.workloads.automl.architecture.fused_network import FusedNetwork, can_fuse
from vflops.workloads.automl.architecture.layer_graph import Architecture, Layer
from vflops.workloads.automl.architecture.module_builder import Network, build
from vflops.workloads.automl.architecture.morphs import Morph
from vflops.workloads.automl.architecture.starting_networks import resnet, resnet50, small

BATCH = 8


@pytest.fixture(autouse=True)
def _nothing_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    if INTERPRETED:
        monkeypatch.setattr(FusedTrunk, "_compile_kernels", lambda trunk, x: None)


def _child(architecture: Architecture, *kinds: str, seed: int = 0) -> Architecture:
    """Return the result of one random morph of each kind."""
    rng = random.Random(seed)
    for kind in kinds:
        choices = [morph for morph in morphs.possible(architecture) if morph.kind == kind]
        architecture = morphs.apply(architecture, rng.choice(choices))
    return architecture


def _pooled(*, v1: bool = False) -> Architecture:
    """Return a network with the max-pooling of ResNet-50, but other widths."""
    return resnet((1, 1), (3, 32, 32), 5, width=8, stride_in_1x1=v1)


def _strided_skip() -> Architecture:
    """Return a network with a skip to a smaller plane."""
    network = small("tiny")
    skips = [m for m in morphs.possible(network) if m.kind == "skip-add" and m.start is not None]
    planes = network.shapes
    morph = next(m for m in skips if planes[m.start or 0][1] == 2 * planes[m.layer][1])
    return morphs.apply(network, morph)


NETWORKS = {
    "first": small("tiny"),
    "pooled": _pooled(),
    "v1": _pooled(v1=True),
    "deeper": _child(small("tiny"), "deepen", "deepen"),
    "wider": _child(small("tiny"), "widen", "widen"),
    "larger kernels": _child(small("tiny"), "kernel", "kernel"),
    "skips": _child(small("tiny"), "skip-add", "skip-concat", "skip-add"),
    "strided skip": _strided_skip(),
    "everything": _child(_pooled(), *morphs.KINDS, seed=3),
}


def _randomised(architecture: Architecture) -> Network:
    # Scales and shifts as in training, so that no term of a batch normalisation is hidden.
    network = build(architecture, torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(2)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1.0, 0.1, generator=generator)
            nn.init.normal_(module.bias, 0.0, 0.1, generator=generator)
    return network


def _step(network: nn.Module, x: Tensor) -> None:
    labels = torch.arange(len(x), device=x.device) % 4
    functional.cross_entropy(network(x).float(), labels).backward()


def _distance(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-12))


def _gradients(network: nn.Module) -> dict[str, Tensor]:
    gradients = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    assert len(gradients) == len(list(network.parameters()))
    return gradients


@kernel_test
@pytest.mark.parametrize("name", NETWORKS)
def test_a_fused_step_is_that_of_the_plain_network(name: str) -> None:
    architecture = NETWORKS[name]
    assert can_fuse(architecture, BATCH)
    dtype = torch.bfloat16 if GPU else torch.float32
    plain = _randomised(architecture).to(DEVICE)
    exact = copy.deepcopy(plain).double()
    fused = FusedNetwork(copy.deepcopy(plain), architecture, dtype)
    x = torch.randn(BATCH, *architecture.input_shape, generator=torch.Generator().manual_seed(3))
    x = x.to(DEVICE)
    _step(exact, x.double())
    _step(fused, x)
    with torch.autocast(DEVICE, dtype, enabled=GPU):
        _step(plain, x)
    exact_gradients, plain_gradients = _gradients(exact), _gradients(plain)
    for key, gradient in _gradients(fused).items():
        # A ReLU whose input is within rounding of 0 may go either way, in the plain network too.
        rounding = 2 * _distance(plain_gradients[key], exact_gradients[key])
        assert _distance(gradient, exact_gradients[key]) < rounding + (0.05 if GPU else 1e-3), key
    for (key, a), b in zip(fused.named_buffers(), exact.buffers(), strict=True):
        assert _distance(a, b) < (0.02 if GPU else 1e-4), key


def test_it_takes_over_the_layers_and_their_names() -> None:
    network = build(small("tiny"))
    fused = FusedNetwork(network, small("tiny"), torch.bfloat16)
    assert list(fused.state_dict()) == list(network.state_dict())
    assert all(a is b for a, b in zip(fused.parameters(), network.parameters(), strict=True))
    x = torch.randn(2, 3, 16, 16)  # too few for the kernels
    torch.testing.assert_close(fused.eval()(x), network.eval()(x), rtol=0, atol=0)


@kernel_test
@pytest.mark.parametrize("name", ["first", "everything"])
def test_a_fused_evaluation_is_that_of_the_plain_network(name: str) -> None:
    architecture = NETWORKS[name]
    dtype = torch.bfloat16 if GPU else torch.float32
    plain = _randomised(architecture).to(DEVICE)
    generator = torch.Generator().manual_seed(4)
    for module in plain.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None and module.running_var is not None
            size = module.running_mean.shape
            module.running_mean.copy_(0.1 * torch.randn(size, generator=generator))
            module.running_var.copy_(0.5 + torch.rand(size, generator=generator))
    fused = FusedNetwork(copy.deepcopy(plain), architecture, dtype)
    x = torch.randn(BATCH, *architecture.input_shape, generator=generator).to(DEVICE)
    with torch.no_grad():
        found, expected = fused.eval()(x), plain.double().eval()(x.double())
    assert _distance(found, expected) < (0.02 if GPU else 1e-5)
    for a, b in zip(fused.buffers(), plain.buffers(), strict=True):
        assert _distance(a, b) < 1e-6


@pytest.mark.parametrize("batch", [128, 256, 448, 512])
def test_resnet50_and_its_children_are_fused(batch: int) -> None:
    network = resnet50((3, 160, 160))
    assert can_fuse(network, batch)
    assert can_fuse(_child(network, *morphs.KINDS), batch)


def test_what_the_kernels_cannot_divide_is_not_fused() -> None:
    assert not can_fuse(small("tiny"), 1)  # 4 pixels in the last stage
    assert not can_fuse(resnet50(), 2688)  # 2^31 numbers and more after the stem
    odd = morphs.apply(small("tiny"), Morph(kind="widen", layer=2, filters=9))
    assert not can_fuse(odd, BATCH)


def test_a_sum_without_a_normalisation_is_not_fused() -> None:
    network = small("tiny")
    first, chain = network.layers[0], network.layers
    assert first.relu
    twice = Layer(id=100, kind="conv", inputs=(first.id,), filters=8, kernel=3, relu=True)
    total = Layer(id=101, kind="add", inputs=(first.id, 100), relu=True)
    rewired = [
        Layer(**{**dict(x), "inputs": tuple(101 if s == first.id else s for s in x.inputs)})
        for x in chain[1:]
    ]
    changed = Architecture(
        input_shape=network.input_shape,
        classes=network.classes,
        layers=(first, twice, total, *rewired),
    )
    assert not can_fuse(changed, BATCH)
