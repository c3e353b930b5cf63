"""What a precision makes of weights, activations, gradients, overflows and torch's switches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vflops.config import names, training
from vflops.errors import UsageError
from vflops.train import precision as module
from vflops.train.optimizers import build
from vflops.train.precision import LossScale, Precision

ON_A_CPU = ["fp32", "fp16", "mixed-fp16", "mixed-bf16"]


class Network(nn.Module):
    """A convolution, batch norm and a constant; what they give is kept."""

    grid: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 4, 3, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 3)
        self.register_buffer("grid", torch.tensor([1151.3]))
        self.seen: dict[str, torch.dtype] = {}

    def forward(self, x: Tensor) -> Tensor:
        convolved = self.convolution(x)
        normed = self.norm(convolved)
        out: Tensor = self.head(normed.relu().mean((2, 3)))
        self.seen = {"convolution": convolved.dtype, "norm": normed.dtype, "head": out.dtype}
        return out


def trained(precision: Precision, steps: int = 1, *, factor: float = 1.0) -> tuple[Network, Any]:
    torch.manual_seed(0)
    model = Network()
    precision.prepare(model)
    optimizer = build("sgd", model.parameters(), learning_rate=0.1)
    scaler = precision.scaler()
    for _ in range(steps):
        optimizer.zero_grad()
        with precision.settings(), precision.autocast():
            logits = model(torch.randn(4, 2, 8, 8).to(precision.input_dtype))
            loss = nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 0])) * factor
        assert loss.dtype is torch.float32
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return model, scaler


@pytest.mark.parametrize(
    ("name", "weights", "activations"),
    [
        ("fp32", torch.float32, torch.float32),
        ("fp16", torch.float16, torch.float16),
        ("mixed-fp16", torch.float32, torch.float16),
        ("mixed-bf16", torch.float32, torch.bfloat16),
    ],
)
def test_types_of_weights_activations_and_gradients(
    name: str, weights: torch.dtype, activations: torch.dtype
) -> None:
    precision = Precision.named(name, "cpu")
    model, _ = trained(precision)
    assert model.convolution.weight.dtype is weights
    assert model.convolution.weight.grad is not None
    assert model.convolution.weight.grad.dtype is weights
    assert model.norm.weight.dtype is model.norm.running_var.dtype is torch.float32  # type: ignore[union-attr]
    assert set(model.seen.values()) == {activations}
    assert precision.input_dtype is activations


def test_pure_fp16_keeps_batch_norm_and_buffers_to_the_last_digit() -> None:
    model = Network()
    with torch.no_grad():
        model.norm.weight.fill_(1.0001)
    before = list(model.parameters())
    prepared = Precision.named("fp16", "cpu").prepare(model)
    assert prepared is model
    assert model.norm.weight[0] == torch.tensor(1.0001)
    assert model.grid == torch.tensor([1151.3])
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("name", ON_A_CPU)
def test_the_ceiling_is_one_that_is_measured(name: str) -> None:
    assert Precision.named(name, "cpu").ceiling in names.PRECISIONS


def test_settings_and_policies_use_the_same_names() -> None:
    assert set(training.TrainingPrecision.__args__) == set(module._POLICIES)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["mixed-fp16", "fp16"])
def test_a_dynamic_scale_falls_when_a_step_overflows(name: str) -> None:
    precision = Precision.named(name, "cpu")
    model, scaler = trained(precision, steps=1, factor=1e30)
    assert scaler.get_scale() == 2.0**15
    fresh, _ = trained(precision, steps=0)
    assert torch.equal(model.convolution.weight, fresh.convolution.weight)
    model, scaler = trained(precision, steps=1)
    assert scaler.get_scale() == 2.0**16
    assert not torch.equal(model.convolution.weight, fresh.convolution.weight)


def test_a_static_scale_stays_and_still_skips() -> None:
    precision = Precision.named("fp16", "cpu", loss_scale=128.0)
    model, scaler = trained(precision, steps=2, factor=1e30)
    assert scaler.get_scale() == 128.0
    fresh, _ = trained(precision, steps=0)
    assert torch.equal(model.convolution.weight, fresh.convolution.weight)


@pytest.mark.parametrize("name", ["fp32", "mixed-bf16"])
def test_nothing_is_scaled_where_no_gradient_is_fp16(name: str) -> None:
    scaler = Precision.named(name, "cpu").scaler()
    assert not scaler.is_enabled()
    assert scaler.scale(torch.tensor(3.0)) == 3.0


def test_scaling_can_be_left_out() -> None:
    assert not Precision.named("fp16", "cpu", loss_scale="none").scaler().is_enabled()


@pytest.mark.parametrize("scale", ["dynamic", 128.0])
def test_a_scaler_resumes(scale: LossScale) -> None:
    precision = Precision.named("mixed-fp16", "cpu", loss_scale=scale)
    _, scaler = trained(precision, steps=1, factor=1e30)
    again = precision.scaler()
    again.load_state_dict(scaler.state_dict())
    assert again.get_scale() == scaler.get_scale()
    assert again.state_dict() == scaler.state_dict()


def switches() -> list[object]:
    backends = torch.backends
    return [
        backends.cuda.matmul.fp32_precision,
        backends.cudnn.conv.fp32_precision,  # type: ignore[attr-defined]
        backends.mkldnn.matmul.fp32_precision,  # type: ignore[attr-defined]
        backends.mkldnn.conv.fp32_precision,  # type: ignore[attr-defined]
        backends.cuda.matmul.allow_tf32,
        backends.cudnn.allow_tf32,
        torch.get_float32_matmul_precision(),
    ]


def on_an_accelerator(name: str, monkeypatch: pytest.MonkeyPatch) -> Precision:
    """As if there were one that has everything."""
    monkeypatch.setattr(module, "product_unavailable_reason", lambda *_: None)
    monkeypatch.setattr(module, "emulation_caveat", lambda *_: None)
    return Precision.named(name, "cuda")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fp32", ["ieee"] * 4 + [False, False, "highest"]),
        ("mixed-bf16", ["ieee"] * 4 + [False, False, "highest"]),
        ("tf32", ["tf32"] * 4 + [True, True, "high"]),
    ],
)
def test_old_and_new_switches_agree_inside_and_come_back(
    name: str, expected: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    precision = on_an_accelerator(name, monkeypatch)
    before = switches()
    with pytest.raises(ValueError, match="stop"), precision.settings():
        assert switches() == expected
        raise ValueError("stop")
    assert switches() == before


def test_tf32_is_refused_on_a_cpu_with_a_cure() -> None:
    with pytest.raises(UsageError, match="tf32 is not available here: a CPU has no tf32") as error:
        Precision.named("tf32", "cpu")
    assert "fp32" in (error.value.hint or "")


def test_a_device_without_the_products_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "product_unavailable_reason", lambda *_: "cpu has no bf16 product")
    with pytest.raises(UsageError, match="mixed-bf16 is not available here: cpu has no bf16"):
        Precision.named("mixed-bf16", "cpu")
    assert Precision.named("fp32", "cpu").name == "fp32"


def test_a_device_without_autocast_is_named() -> None:
    with pytest.raises(UsageError, match="no autocast for meta"):
        Precision.named("mixed-bf16", "meta")


@pytest.mark.parametrize(
    ("name", "scale", "words"),
    [
        ("fp32", 128.0, "only fp16 gradients need one"),
        ("mixed-bf16", "dynamic", "only fp16 gradients need one"),
        ("fp16", 0.0, "not a number greater than 0"),
        ("fp16", float("nan"), "not a number greater than 0"),
    ],
)
def test_a_loss_scale_without_sense_is_refused(name: str, scale: LossScale, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Precision.named(name, "cpu", loss_scale=scale)


def test_an_unknown_precision_gets_a_suggestion() -> None:
    with pytest.raises(UsageError) as error:
        Precision.named("mixed_fp16", "cpu")
    assert "mixed-fp16" in (error.value.hint or "")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ["fp32", "tf32", "fp16", "mixed-fp16", "mixed-bf16"])
def test_a_gpu_trains_compiled_in_every_precision(name: str) -> None:
    precision = Precision.named(name, "cuda")
    torch.manual_seed(0)
    model = precision.prepare(Network().cuda())
    compiled = torch.compile(model)
    optimizer = build("sgd", model.parameters(), learning_rate=0.1)
    scaler = precision.scaler()
    x = torch.randn(32, 2, 16, 16, device="cuda", dtype=precision.input_dtype)
    target = torch.arange(32, device="cuda") % 3
    losses = []
    with precision.settings():
        for _ in range(8):
            with precision.autocast():
                loss = nn.functional.cross_entropy(compiled(x), target)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(loss.detach())
    assert losses[-1] < losses[0]
