"""Every optimizer and every precision of CPUs trains a small language model."""

from __future__ import annotations

import pytest
import torch

from vflops.config.training import TrainSettings
from vflops.record.formats.job import DataFacts
from vflops.train.backends.torch_backend import TorchBackend
from vflops.train.parallel.parallel_plan import SingleRank
from vflops.train.precision import Precision
from vflops.workloads.language_model.settings import LanguageSettings, TransformerSettings
from vflops.workloads.language_model.workload import LanguageModel

CPU = torch.device("cpu")
CONTEXT, VOCABULARY = 16, 32


def losses(style: str = "gpt2", steps: int = 20, **train: object) -> list[float]:
    """Return the losses of steps on one batch, before each of them."""
    settings = LanguageSettings(
        context=CONTEXT,
        network=TransformerSettings.model_validate(
            {"style": style, "layers": 1, "width": 32, "heads": 2, "qk_norm": True}
        ),
        train=TrainSettings.model_validate({"batch": 8, "weight_decay": 0.01, **train}),
    )
    data = DataFacts(
        path="",
        synthetic=True,
        fingerprint="",
        train=8,
        validation=8,
        facts={"vocabulary": VOCABULARY},
    )
    workload = LanguageModel(settings, data)
    precision = Precision.named(settings.train.precision, CPU)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, VOCABULARY, (8, CONTEXT + 1), generator=generator)
    inputs = workload.inputs((tokens,), None, precision.input_dtype)
    with precision.settings():
        backend = TorchBackend(settings.train, workload, SingleRank(), precision, CPU, seed=3)
        rate = settings.train.peak_rate
        return [backend.take_step([inputs], rate).item() for _ in range(steps)]


@pytest.mark.parametrize(
    ("optimizer", "rate"),
    [
        ("sgd", 0.3),
        ("adam", 0.01),
        ("adamw", 0.01),
        ("adagrad", 0.05),
        ("lars", 30.0),
        ("lamb", 0.05),
        ("muon", 0.02),
    ],
)
def test_every_optimizer_lowers_the_loss(optimizer: str, rate: float) -> None:
    first, *_, last = losses(optimizer=optimizer, learning_rate=rate)
    assert last < first - 0.5


@pytest.mark.parametrize("style", ["gpt2", "llama"])
@pytest.mark.parametrize(
    ("precision", "optimizer", "rate"),
    [("fp16", "sgd", 0.3), ("mixed-fp16", "adamw", 0.01), ("mixed-bf16", "adamw", 0.01)],
)
def test_half_precision_learns_as_much_as_fp32(
    precision: str, optimizer: str, rate: float, style: str
) -> None:
    ways = {"optimizer": optimizer, "learning_rate": rate, "style": style}
    half, full = (losses(precision=item, **ways) for item in (precision, "fp32"))  # type: ignore[arg-type]
    assert full[-1] < full[0] - 0.5
    # A loss scale that overflows skips the first steps.
    assert min(half) < full[0] - 0.8 * (full[0] - full[-1])
