"""The language model as a workload: conformance, ensembles, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from vflops.data.text.floor import floor_of_recipe
from vflops.data.text.text_recipe import TextRecipe
from vflops.errors import UsageError
from vflops.testing.workloads import WorkloadConformance
from vflops.workloads.contract.combine import mean
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import load, profile
from vflops.workloads.contract.workload import Inputs
from vflops.workloads.language_model.quality import (
    TokenMeter,
    next_token_probability,
    token_loss,
)
from vflops.workloads.language_model.settings import LanguageSettings, TransformerSettings
from vflops.workloads.language_model.workload import LanguageModel


class TestConformance(WorkloadConformance):
    spec = workload("language-model")
    overfit_rate = 0.003
    shorter = ("train.epochs=1", "train.warmup_epochs=0", "synthetic.train=32768")

    def perfect(self, inputs: Inputs) -> Tensor:
        return torch.ones(*inputs[1].shape, 1)


def measured(probabilities: Tensor, valid: Tensor | None = None) -> list[dict[str, float]]:
    meter = TokenMeter(torch.device("cpu"))
    keep = torch.ones(len(probabilities), dtype=torch.bool) if valid is None else valid
    meter.update(probabilities[..., None], (), keep)
    return [meter.summary()]  # type: ignore[list-item]


def test_quality_is_the_geometric_mean_of_the_probabilities() -> None:
    probabilities = torch.tensor([[0.5, 0.125], [0.25, 1.0]])
    summaries = measured(probabilities)
    assert next_token_probability(summaries) == pytest.approx((0.5 * 0.125 * 0.25) ** 0.25)
    assert token_loss(summaries) == pytest.approx(math.log(64) / 4)
    padded = measured(probabilities, torch.tensor([True, False]))
    assert next_token_probability(padded) == pytest.approx(0.25)


def test_an_ensemble_is_never_worse_than_the_mean_loss_of_its_models() -> None:
    generator = torch.Generator().manual_seed(0)
    models = [torch.rand(4, 50, generator=generator).clamp_min(0.01) for _ in range(3)]
    combined = torch.from_numpy(mean([m[..., None].numpy() for m in models]))[..., 0]
    losses = [token_loss(measured(model)) for model in models]
    assert token_loss(measured(combined)) < sum(losses) / len(losses)  # log is concave


def tiny(*changes: str) -> LanguageSettings:
    settings = load(profile("tiny", ["language-model"]), None, list(changes))
    return LanguageSettings.model_validate(settings.workloads["language-model"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("network.heads=5", "width 64 cannot be divided into 5 heads"),
        ("network.kv_heads=3", "4 heads cannot share 3"),
        ("network.capacity=0", "capacity"),
        ("network.preset=gpt5", "preset"),
        ("synthetic.vocabulary=10", "vocabulary"),
    ],
)
def test_impossible_networks_are_refused(change: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        tiny(change)


def test_more_experts_per_token_than_experts_are_refused() -> None:
    with pytest.raises(ValueError, match="experts_per_token 4 is above experts 2"):
        TransformerSettings(experts=2, experts_per_token=4)


def test_a_preset_gives_what_is_not_set() -> None:
    settings = TransformerSettings.model_validate({"preset": "llama-1b", "layers": 2})
    assert (settings.layers, settings.width, settings.kv_heads) == (2, 2048, 8)
    assert TransformerSettings.model_validate(settings.model_dump()) == settings


def test_a_target_beyond_the_floor_is_refused() -> None:
    settings = tiny()
    tokens = (2 * 16384 - 1) // 64 * 64
    floor = floor_of_recipe(TextRecipe(vocabulary=64, seed=1), "val", tokens)
    reachable = settings.model_copy(update={"target": math.exp(-floor.loss) - 1e-4})
    facts = LanguageModel.prepare_data(reachable, lambda *_: None)
    assert facts.facts["floor"] == pytest.approx(floor.loss, abs=1e-12)
    impossible = settings.model_copy(update={"target": math.exp(-floor.loss) + 1e-4})
    with pytest.raises(UsageError, match="below the floor of this text"):
        LanguageModel.prepare_data(impossible, lambda *_: None)


def test_a_folder_of_text_is_packed_as_bytes(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text(f"document {number}: " + "some words. " * 40)
    settings = tiny("train.batch=4").model_copy(
        update={"data": str(tmp_path), "target": 0.3, "held_out": 0.2}
    )
    facts = LanguageModel.prepare_data(settings, lambda *_: None)
    assert facts.synthetic is False
    assert facts.facts["vocabulary"] == 256
    assert "floor" not in facts.facts
    text = sum(path.stat().st_size for path in tmp_path.iterdir())
    # Each document has a separator; the last window of each split may be cut off.
    assert text + 40 - 2 * 65 <= 64 * (facts.train + facts.validation) <= text + 40
    samples = LanguageModel.create(settings, facts).samples("train")
    assert len(samples) == facts.train


@pytest.mark.parametrize("name", ["tiny", "laptop", "gpu"])
def test_a_preset_overrules_the_profile_but_not_the_user(name: str) -> None:
    base = profile(name, ["language-model"])
    loaded = load(base, None, ["network.layers=3", "network.preset=llama-8b"])
    network = TransformerSettings.model_validate(loaded.workloads["language-model"]["network"])
    expected = TransformerSettings(preset="llama-8b", layers=3)
    assert network == expected
    assert (network.width, network.kv_heads, network.tied) == (4096, 8, False)
