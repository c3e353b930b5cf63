"""Experts: the same as computing every expert for every token, within their capacity."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from vflops.models.language.experts import Experts
from vflops.models.language.transformer import Transformer
from vflops.models.language.transformer_design import TransformerDesign

DESIGN = TransformerDesign(
    layers=1,
    width=16,
    heads=2,
    kv_heads=2,
    mlp_width=24,
    vocabulary=50,
    context=12,
    experts=4,
    experts_per_token=2,
    capacity=4.0,
)


def built(design: TransformerDesign) -> Experts:
    torch.manual_seed(3)
    experts = Experts(design).double()
    for parameter in experts.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return experts


def one_by_one(experts: Experts, x: Tensor) -> Tensor:
    """Compute the experts of each token separately, without any capacity."""
    rows = x.flatten(0, 1)
    results = []
    for row in rows:
        shares = (experts.router.weight @ row).softmax(0)
        best = shares.argsort(descending=True)[: experts.active]
        total = shares[best].sum()
        result = torch.zeros_like(row)
        for expert in best:
            up = row @ experts.up.weight[expert]
            if experts.gate is None:
                inner = functional.gelu(up, approximate="tanh")
            else:
                inner = functional.silu(row @ experts.gate.weight[expert]) * up
            result = result + shares[expert] / total * (inner @ experts.down.weight[expert])
        results.append(result)
    return torch.stack(results).view_as(x)


@pytest.mark.parametrize("style", ["gpt2", "llama"])
def test_outputs_and_gradients_are_those_of_separate_experts(style: str) -> None:
    experts = built(replace(DESIGN, style=style))  # type: ignore[arg-type]
    x = torch.randn(2, 12, 16, dtype=torch.float64, requires_grad=True)
    y, _ = experts(x)
    torch.testing.assert_close(y, one_by_one(experts, x), rtol=0, atol=1e-12)
    slope = torch.randn_like(y)
    y.backward(slope)
    assert x.grad is not None
    gradient, x.grad = x.grad, None
    one_by_one(experts, x).backward(slope)
    torch.testing.assert_close(gradient, x.grad, rtol=0, atol=1e-12)


def test_tokens_beyond_the_capacity_skip_the_expert() -> None:
    experts = built(replace(DESIGN, experts_per_token=1, capacity=0.5))
    with torch.no_grad():
        experts.router.weight.zero_()
        experts.router.weight[2] = 1.0
    x = torch.rand(1, 12, 16, dtype=torch.float64) + 0.1  # all prefer expert 2
    assert experts.design.expert_places(12) == 2
    y, _ = experts(x)
    assert (y[0, :2].abs().sum(-1) > 0).all()
    assert (y[0, 2:] == 0).all()


@pytest.mark.parametrize(("active", "learns"), [(1, False), (2, True)])
def test_only_second_choices_depend_on_later_tokens(active: int, learns: bool) -> None:
    """The margin of the floor for models with experts rests on it."""
    experts = built(replace(DESIGN, experts_per_token=active, capacity=0.5))
    x = torch.randn(2, 96, 16, dtype=torch.float64)
    other = x.clone()
    other[1] = torch.randn(96, 16, dtype=torch.float64)
    with torch.no_grad():
        (before, _), (after, _) = experts(x), experts(other)
        unlimited = one_by_one(experts, x)
    assert not torch.allclose(before[0], unlimited[0])  # some tokens found no place
    assert torch.allclose(before[0], after[0], rtol=1e-12, atol=1e-12) is not learns


def test_balance_is_one_for_even_experts_and_their_number_for_a_single_one() -> None:
    experts = built(replace(DESIGN, experts_per_token=1))
    x = torch.zeros(1, 12, 16, dtype=torch.float64)
    x[0, torch.arange(12), torch.arange(12) % 4] = 50.0
    with torch.no_grad():
        experts.router.weight.zero_()
        experts.router.weight[range(4), range(4)] = 1.0
    _, balance = experts(x)
    assert balance.item() == pytest.approx(1.0, abs=1e-6)
    _, balance = experts(x[:, :1].expand(1, 12, 16))
    assert balance.item() == pytest.approx(4.0, abs=1e-6)


def balance_by_hand(experts: Experts, x: Tensor) -> float:
    """Experts × the sum over experts of (share of first choices × mean probability)."""
    rows = x.flatten(0, 1)
    shares = torch.stack([(experts.router.weight @ row).softmax(0) for row in rows])
    first = [int(row.argmax()) for row in shares]
    return sum(
        len(shares[0]) * first.count(expert) / len(rows) * shares[:, expert].mean().item()
        for expert in range(len(shares[0]))
    )


def test_the_balance_counts_in_training_only() -> None:
    """A hundredth of the mean of the layers' balances is added to the loss of every token."""
    torch.manual_seed(0)
    model = Transformer(replace(DESIGN, layers=2)).double()
    seen: list[tuple[Experts, Tensor]] = []
    for module in model.modules():
        if isinstance(module, Experts):
            with torch.no_grad():
                module.router.weight.normal_(std=2.0)  # uneven, so that the balances are not 1
            module.register_forward_hook(lambda m, inputs, _: seen.append((m, inputs[0].detach())))
    ids = torch.randint(0, 50, (2, 13))
    trained = model.train()(ids[:, :-1], ids[:, 1:])
    balances = [balance_by_hand(experts, x) for experts, x in seen]
    assert len(balances) == 2 and all(balance > 1.05 for balance in balances)
    evaluated = model.eval()(ids[:, :-1], ids[:, 1:])
    expected = torch.full_like(trained, 0.01 * sum(balances) / 2)
    torch.testing.assert_close(trained - evaluated, expected, rtol=0, atol=1e-12)
