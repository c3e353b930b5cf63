"""The kernel of token losses against the same sums in float64."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.support.triton_kernels import DEVICE, kernel_test


@pytest.mark.parametrize(
    ("vocabulary", "columns", "block"), [(100, 128, 64), (50, 128, 4096), (128, 128, 32)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@kernel_test
def test_losses_and_gradients(
    dtype: torch.dtype, vocabulary: int, columns: int, block: int
) -> None:
    from vflops.models.kernels import token_loss_kernel

    torch.manual_seed(0)
    logits = (3 * torch.randn(7, columns)).to(DEVICE, dtype)
    targets = torch.randint(0, vocabulary, (7,), device=DEVICE)
    exact = logits[:, :vocabulary].double().requires_grad_()
    expected = functional.cross_entropy(exact, targets, reduction="none")
    expected.sum().backward()
    kept = logits.clone()
    losses = token_loss_kernel.losses(kept, targets, vocabulary, block=block)
    assert torch.equal(kept, logits)  # an evaluation needs no gradients
    again, factors = token_loss_kernel.losses_and_gradients(kept, targets, vocabulary, block=block)
    # Sums of up to 128 numbers in fp32.
    for found in (losses, again):
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=128 * 2**-24 * 16)
    assert exact.grad is not None
    gradient = kept.double() * factors.double()[:, None]
    atol = 1e-5 if dtype is torch.float32 else 2**-11
    torch.testing.assert_close(gradient[:, :vocabulary], exact.grad, rtol=0, atol=atol)
    assert not kept[:, vocabulary:].any()


@kernel_test
def test_a_base_that_is_too_low_is_raised() -> None:
    """Each block is far above those before it: exp(logit − first) would overflow."""
    from vflops.models.kernels.token_loss_kernel import losses_and_gradients

    torch.manual_seed(0)
    steps = torch.arange(4).repeat_interleave(32) * torch.tensor([[45.0], [-45.0], [15.0]])
    logits = (steps + torch.randn(3, 128)).to(DEVICE)
    targets = torch.tensor([127, 0, 70], device=DEVICE)
    exact = logits.double().requires_grad_()
    expected = functional.cross_entropy(exact, targets, reduction="none")
    expected.sum().backward()
    losses, factors = losses_and_gradients(logits, targets, 128, block=32)
    assert exact.grad is not None
    torch.testing.assert_close(losses.double(), expected, rtol=1e-6, atol=1e-5)
    gradient = logits.double() * factors.double()[:, None]
    torch.testing.assert_close(gradient, exact.grad, rtol=1e-4, atol=1e-7)


@kernel_test
def test_very_unlikely_targets_have_finite_losses() -> None:
    from vflops.models.kernels import token_loss_kernel

    logits = torch.zeros(2, 128, device=DEVICE)
    logits[:, 3] = 1000.0
    targets = torch.tensor([5, 3], device=DEVICE)
    assert token_loss_kernel.losses(logits, targets, 100).tolist() == [1000.0, 0.0]
    losses, factors = token_loss_kernel.losses_and_gradients(logits, targets, 100)
    assert losses.tolist() == [1000.0, 0.0] and factors.tolist() == [1.0, 1.0]
    assert logits[0, 3].item() == 1.0 and logits[0, 5].item() == -1.0
    assert not logits[1].any()


@kernel_test
def test_the_gradients_of_states_and_weights_are_those_of_float64() -> None:
    from vflops.models.language.token_losses import _fused

    torch.manual_seed(0)
    hidden, weight = torch.randn(6, 8, device=DEVICE), torch.randn(50, 8, device=DEVICE)
    targets, slopes = torch.randint(0, 50, (6,), device=DEVICE), torch.rand(6, device=DEVICE)
    found = [x.clone().requires_grad_() for x in (hidden, weight)]
    exact = [x.double().requires_grad_() for x in (hidden, weight)]
    losses = _fused(*found, targets, True)[0]
    expected = functional.cross_entropy(exact[0] @ exact[1].t(), targets, reduction="none")
    torch.testing.assert_close(losses.double(), expected, rtol=1e-5, atol=1e-5)
    (losses * slopes).sum().backward()
    (expected * slopes.double()).sum().backward()
    for one, other in zip(found, exact, strict=True):
        assert one.grad is not None and other.grad is not None
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=1e-4, atol=1e-5)
    evaluated, kept, _ = _fused(hidden, weight, targets, False)
    torch.testing.assert_close(evaluated.double(), expected.detach(), rtol=1e-5, atol=1e-5)
    assert kept.numel() == 0
