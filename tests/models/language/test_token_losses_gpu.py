"""The fused loss on a GPU, inside of a compiled and recorded training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional

from tests.support.train_runs import evaluations, planned
from tests.train.test_engine_gpu import train
from vflops.models.language.token_losses import token_losses
from vflops.record.formats.job_events import JobStarted

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no accelerator"),
]

TEXT = (
    "synthetic.train=65536",
    "synthetic.validation=16384",
    "context=128",
    "network.width=128",
    "network.heads=2",
    "train.batch=64",
    "train.epochs=2",
    "train.warmup_epochs=0",
    "train.precision=mixed-bf16",
)


def test_losses_and_gradients_are_those_of_float64_within_bf16() -> None:
    torch.manual_seed(0)
    tokens, width, vocabulary = 256, 64, 1000  # not a multiple of 128
    hidden = torch.randn(tokens, width, device="cuda", requires_grad=True)
    weight = torch.randn(vocabulary, width, device="cuda", requires_grad=True)
    targets = torch.randint(0, vocabulary, (tokens,), device="cuda")
    slopes = torch.rand(tokens, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        losses = token_losses(hidden, weight, targets)
    (losses * slopes).sum().backward()
    exact_hidden = hidden.detach().bfloat16().double().requires_grad_()
    exact_weight = weight.detach().bfloat16().double().requires_grad_()
    exact = functional.cross_entropy(exact_hidden @ exact_weight.t(), targets, reduction="none")
    (exact * slopes.double()).sum().backward()
    # Logits of at most 40 are rounded to 8 bits.
    assert (losses.double() - exact).abs().max() < 40 * 2**-8
    for found, expected in ((hidden.grad, exact_hidden.grad), (weight.grad, exact_weight.grad)):
        assert found is not None and expected is not None
        distance = (found.double() - expected).norm() / expected.norm()
        assert distance < 4 * 2**-8


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("network.style=llama", "network.kv_heads=1", "network.qk_norm=true"),
        ("network.experts=4",),
        ("train.optimizer=muon", "train.momentum=0.95"),
    ],
    ids=["gpt2", "llama", "experts", "muon"],
)
def test_a_compiled_and_recorded_step_trains(changes: tuple[str, ...], tmp_path: Path) -> None:
    log = train(planned(tmp_path, *TEXT, *changes, workload="language-model"))
    started = log.events[0].payload(JobStarted)
    assert (started.device, started.compiled, started.recorded) == ("cuda", True, True)
    first, second = evaluations(log)
    # A uniform distribution over the vocabulary of 64 has 1/64; the second epoch learns more.
    assert 1.2 / 64 < first.quality < second.quality
