"""The kernel of token losses against the same sums in float64."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.support.triton_kernels import DEVICE, kernel_test


@pytest.mark.parametrize(
    ("vocabulary", "columns", "block"), [(100, 128, 64), (50, 128, 4096), (128, 128, 128)]
)
@kernel_test
def test_losses_and_gradients(vocabulary: int, columns: int, block: int) -> None:
    from vflops.models.kernels.token_loss_kernel import losses_and_gradients

    torch.manual_seed(0)
    logits = (3 * torch.randn(7, columns)).to(DEVICE)
    targets = torch.randint(0, vocabulary, (7,), device=DEVICE)
    exact = logits[:, :vocabulary].double().requires_grad_()
    expected = functional.cross_entropy(exact, targets, reduction="none")
    expected.sum().backward()
    kept = logits.clone()
    losses = losses_and_gradients(kept, targets, vocabulary, keeps_gradient=False, block=block)
    assert torch.equal(kept, logits)  # an evaluation needs no gradients
    again = losses_and_gradients(kept, targets, vocabulary, keeps_gradient=True, block=block)
    assert torch.equal(losses, again)
    # Sums of up to 128 numbers in fp32.
    torch.testing.assert_close(losses.double(), expected, rtol=0, atol=128 * 2**-24 * 16)
    assert exact.grad is not None
    torch.testing.assert_close(kept[:, :vocabulary].double(), exact.grad, rtol=0, atol=1e-5)
    assert not kept[:, vocabulary:].any()


@kernel_test
def test_very_unlikely_targets_have_finite_losses() -> None:
    from vflops.models.kernels.token_loss_kernel import losses_and_gradients

    logits = torch.zeros(2, 128, device=DEVICE)
    logits[:, 3] = 1000.0
    targets = torch.tensor([5, 3], device=DEVICE)
    losses = losses_and_gradients(logits, targets, 100, keeps_gradient=True)
    assert losses.tolist() == [1000.0, 0.0]
    assert logits[0, 3].item() == 1.0 and logits[0, 5].item() == -1.0
