"""Muon: orthogonal steps for matrices, those of AdamW for the rest, and parts of matrices."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from vflops.train.muon import Muon, orthogonalised


def test_all_singular_values_of_a_step_are_near_one() -> None:
    torch.manual_seed(0)
    matrices = torch.randn(3, 24, 10, dtype=torch.float64)
    values = torch.linalg.svdvals(orthogonalised(matrices))
    assert values.min() > 0.6 and values.max() < 1.25  # Jordan et al.: 0.7 to 1.2
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    overlap = (orthogonalised(matrices) * (left @ right)).sum((1, 2)) / 10
    assert overlap.min() > 0.8  # the directions are kept


def weights(*shape: int) -> nn.Parameter:
    parameter = nn.Parameter(torch.randn(*shape, dtype=torch.float64))
    parameter.grad = torch.randn(*shape, dtype=torch.float64)
    return parameter


def test_a_step_is_that_of_the_formula() -> None:
    torch.manual_seed(1)
    matrix = weights(6, 4)
    assert matrix.grad is not None
    before, gradient = matrix.detach().clone(), matrix.grad.clone()
    optimizer = Muon(
        [{"params": [matrix], "orthogonal": True}], 0.1, momentum=0.9, weight_decay=0.5
    )
    expected, momentum = before, torch.zeros_like(before)
    for _ in range(2):
        optimizer.step()
        momentum = 0.9 * momentum + gradient
        step = orthogonalised((gradient + 0.9 * momentum)[None])[0]
        expected = (1 - 0.1 * 0.5) * expected - 0.1 * 0.2 * 6**0.5 * step
    torch.testing.assert_close(matrix.detach(), expected, rtol=0, atol=1e-12)


def test_other_parameters_take_the_steps_of_adamw() -> None:
    torch.manual_seed(2)
    mine = weights(5)
    other = nn.Parameter(mine.detach().clone())
    assert mine.grad is not None
    other.grad = mine.grad.clone()
    options = {"lr": 0.01, "betas": (0.9, 0.95), "weight_decay": 0.1}
    optimizers = [Muon([mine], **options), torch.optim.AdamW([other], **options)]  # type: ignore[arg-type]
    for optimizer in optimizers * 3:
        optimizer.step()
    torch.testing.assert_close(mine.detach(), other.detach(), rtol=0, atol=1e-12)


def test_a_part_of_a_matrix_takes_the_part_of_the_step() -> None:
    """Of the whole matrix, which another rank has the other rows of."""
    torch.manual_seed(3)
    whole = weights(6, 4)
    part = nn.Parameter(whole.detach()[:2].clone())
    assert whole.grad is not None
    part.grad, rest = whole.grad[:2].clone(), 1.95 * whole.grad[2:]  # of the first step

    def gathered(own: Tensor) -> Tensor:
        return torch.cat([own, rest])

    part.divided = SimpleNamespace(whole=gathered, own=lambda step: step[:2])  # type: ignore[attr-defined]
    for parameter in (whole, part):
        Muon([{"params": [parameter], "orthogonal": True}], 0.1, momentum=0.95).step()
    torch.testing.assert_close(part.detach(), whole.detach()[:2], rtol=0, atol=1e-12)
