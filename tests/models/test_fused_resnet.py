"""The fused ResNet agrees with the plain one: outputs, gradients, running statistics."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from tests.support.triton_kernels import GPU, kernel_test
from vflops.models import fused_resnet
from vflops.models.fused_resnet import FusedResNet
from vflops.models.fused_stem import space_to_depth, stem_weight, stem_weight_gradient
from vflops.models.resnet import ResNet


def _randomise(network: nn.Module) -> None:
    # Scales and shifts as in training, so that no term of a batch normalisation is hidden.
    for name, module in network.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 0.5 if name.endswith("bn3") else 1.0, 0.1)
            nn.init.normal_(module.bias, 0.0, 0.1)


def _on_the_gpu(network: ResNet) -> ResNet:
    layout: Any = {"memory_format": torch.channels_last}
    return network.cuda().to(**layout)


def _distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


def _loss(scores: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(scores.float(), labels, label_smoothing=0.1)


def test_the_stem_over_patches_is_the_seven_by_seven_exactly() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 32, 64, dtype=torch.float64)
    weight = torch.randn(8, 3, 7, 7, dtype=torch.float64, requires_grad=True)
    plain = functional.conv2d(x, weight, stride=2, padding=3)
    packed = stem_weight(weight.detach()).requires_grad_()
    patches = functional.conv2d(space_to_depth(x), packed)
    torch.testing.assert_close(patches, plain, rtol=1e-12, atol=1e-12)
    upstream = torch.randn_like(plain)
    plain.backward(upstream)
    patches.backward(upstream)
    assert packed.grad is not None
    torch.testing.assert_close(stem_weight_gradient(packed.grad, 3), weight.grad)


def test_it_is_a_resnet_with_the_same_state() -> None:
    with torch.device("meta"):
        plain, fused = ResNet(), FusedResNet()
    assert isinstance(fused, ResNet)
    assert {k: v.shape for k, v in fused.state_dict().items()} == {
        k: v.shape for k, v in plain.state_dict().items()
    }


def test_on_a_cpu_it_computes_as_the_plain_one() -> None:
    torch.manual_seed(0)
    plain = ResNet((1, 1), classes=3, width=8).double()
    fused = FusedResNet((1, 1), classes=3, width=8).double()
    fused.load_state_dict(plain.state_dict())
    x = torch.randn(4, 3, 32, 32, dtype=torch.float64)
    assert not fused.fuses(x) and not fused.fuses(x.float())
    torch.testing.assert_close(fused(x), plain(x), rtol=1e-12, atol=1e-12)


def test_the_model_imports_without_triton() -> None:
    code = "import sys, vflops.models.fused_resnet; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@kernel_test
@pytest.mark.skipif(GPU, reason="fp32 tiles do not fit a multiprocessor")
def test_a_step_with_the_kernels_is_that_of_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    plain = ResNet((2, 1, 1), classes=10)  # every kind of block, and strides in succession
    _randomise(plain)
    fused = FusedResNet((2, 1, 1), classes=10, dtype=torch.float32)
    fused.load_state_dict(plain.state_dict())
    monkeypatch.setattr(fused, "fuses", lambda x: True)
    x, labels = torch.randn(2, 3, 32, 32), torch.arange(2)
    for network in (plain, fused):
        _loss(network(x), labels).backward()
    # If a value is within rounding of zero, a ReLU may go either way: in a network of four stages,
    # the fp32 gradients of the plain model differ from fp64 by up to 0.7 %. The tests of the
    # kernels are exact.
    _same(fused, plain, gradients=1e-2, statistics=1e-5)


@pytest.mark.parametrize(
    ("shape", "fuses"),
    [
        ((64, 3, 224, 224), True),
        ((32, 3, 32, 32), True),
        ((8, 3, 64, 64), True),
        ((5, 3, 224, 224), False),  # 245 pixels in the last stage are not a multiple of 32
        ((32, 3, 224, 240), False),
        ((32, 4, 224, 224), False),
        ((2688, 3, 224, 224), False),  # 2^31 numbers and more after the stem
        ((2656, 3, 224, 224), True),
    ],
)
def test_which_batches_the_kernels_divide(
    shape: tuple[int, ...], fuses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_resnet, "runs_on", lambda device: True)
    with FakeTensorMode():
        model, x = FusedResNet(), torch.empty(shape, device="cuda")
        assert model.fuses(x) == fuses
        assert not model.eval().fuses(x)
        assert not model.train().fuses(torch.empty(shape))
        with torch.no_grad():
            assert not model.fuses(x)


def _same(fused: nn.Module, plain: nn.Module, *, gradients: float, statistics: float) -> None:
    for (name, a), b in zip(fused.named_parameters(), plain.parameters(), strict=True):
        assert a.grad is not None, name
        assert b.grad is not None, name
        assert _distance(a.grad, b.grad) < gradients, name
    for (name, x), y in zip(fused.named_buffers(), plain.buffers(), strict=True):
        assert _distance(x.double(), y.double()) < statistics, name


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_on_a_gpu_it_is_as_near_to_fp32_as_autocast_is(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    plain = _on_the_gpu(ResNet())
    _randomise(plain)
    fused = _on_the_gpu(FusedResNet(dtype=dtype))
    assert isinstance(fused, FusedResNet)
    cast = _on_the_gpu(ResNet())
    fused.load_state_dict(plain.state_dict())
    cast.load_state_dict(plain.state_dict())
    x = torch.randn(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (64,), device="cuda")
    scale = 1024.0
    if not fused.fuses(x):
        pytest.skip("the kernels are for Hopper GPUs with Triton")
    with torch.backends.cudnn.flags(allow_tf32=False):
        exact = _loss(plain(x), labels)
        (scale * exact).backward()
    with torch.autocast("cuda", dtype):
        near = _loss(cast(x), labels)
    (scale * near).backward()
    loss = _loss(fused(x), labels)
    (scale * loss).backward()
    assert abs(loss - exact) < 5e-3 * exact
    ours: list[float] = []
    theirs: list[float] = []
    for a, b, c in zip(fused.parameters(), cast.parameters(), plain.parameters(), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert c.grad is not None
        ours.append(_distance(a.grad, c.grad))
        theirs.append(_distance(b.grad, c.grad))
    assert sum(ours) < 1.25 * sum(theirs)
    assert all(a < 2 * b + 1e-3 for a, b in zip(ours, theirs, strict=True))
    for (name, u), v in zip(fused.named_buffers(), plain.buffers(), strict=True):
        assert _distance(u.double(), v.double()) < 2e-2, name


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_batch_that_the_kernels_do_not_divide_is_computed_plainly() -> None:
    fused = _on_the_gpu(FusedResNet())
    assert isinstance(fused, FusedResNet)
    x = torch.randn(5, 3, 224, 224, device="cuda")
    assert not fused.fuses(x)
    assert fused(x).shape == (5, 1000)
