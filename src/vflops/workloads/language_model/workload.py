"""Language model: a transformer, the loss of the next token, exp(−loss) as quality."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vflops.config.training import WorkloadSettings
from vflops.counting.capture import InputSpec
from vflops.data.text.packed_text import PackedText
from vflops.data.text.readable_text import readable
from vflops.data.text.token_windows import TokenWindows
from vflops.models.language.transformer import Transformer
from vflops.record.formats.job import DataFacts
from vflops.workloads.contract.code import Progress
from vflops.workloads.contract.workload import (
    Exhibits,
    Inputs,
    Meter,
    Split,
    Summary,
)
from vflops.workloads.language_model.data import JobText, TextSamples, prepare
from vflops.workloads.language_model.generation import continued
from vflops.workloads.language_model.quality import (
    TokenMeter,
    next_token_probability,
    token_loss,
)
from vflops.workloads.language_model.settings import LanguageSettings
from vflops.workloads.packed_workload import PackedWorkload


class LanguageModel(PackedWorkload[JobText, TextSamples]):
    """A decoder-only transformer on text."""

    model_inputs = 2  # tokens, and the token after each: the model returns losses, not logits
    can_be_recorded = True
    exhibits_model = True
    packed = PackedText

    def __init__(self, settings: LanguageSettings, data: DataFacts) -> None:
        super().__init__(JobText(data))
        self._settings = settings
        self._vocabulary = int(data.facts["vocabulary"])

    @classmethod
    def prepare_data(cls, settings: WorkloadSettings, progress: Progress) -> DataFacts:
        """Open, pack or generate the text."""
        assert isinstance(settings, LanguageSettings)
        return prepare(settings, progress)

    @classmethod
    def target(cls, settings: WorkloadSettings) -> float:
        """Return the user's target, or that of the synthetic text."""
        assert isinstance(settings, LanguageSettings)
        return settings.target_probability

    @classmethod
    def create(cls, settings: WorkloadSettings, data: DataFacts) -> LanguageModel:
        """Return the workload with its text opened."""
        assert isinstance(settings, LanguageSettings)
        return cls(settings, data)

    def model(self) -> nn.Module:
        """Return a transformer with one output per token of the vocabulary."""
        settings = self._settings
        return Transformer(settings.network.design(self._vocabulary, settings.context))

    def open_samples(self, split: Split) -> TextSamples:
        """Open a split of the packed text."""
        name = "train" if split == "train" else "val"
        return TextSamples(self._splits.split(name), self._settings.context)

    def input_specs(self) -> Sequence[InputSpec]:
        """Return the specs of the tokens of a sample and those that follow them."""
        spec = InputSpec((self._settings.context,), "int64")
        return spec, spec

    def inputs(self, batch: tuple[Tensor, ...], draws: Tensor | None, dtype: torch.dtype) -> Inputs:
        """Return the tokens, and the token after each."""
        (tokens,) = batch
        # Contiguous, as the copies of a recorded step are: it need not be compiled again.
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def loss(self, outputs: Any, inputs: Inputs) -> Tensor:
        """Return the mean loss of a token."""
        loss: Tensor = outputs.mean()
        return loss

    def predict(self, outputs: Any) -> Tensor:
        """Return the probability of each true token (samples, tokens, 1), all that ensembles need.

        The mean over models of these is the probability that the ensemble gives the true token.
        """
        probabilities: Tensor = outputs.float().neg().exp()[..., None]
        return probabilities

    def meter(self, device: torch.device) -> Meter:
        """Return a meter of the loss of tokens."""
        return TokenMeter(device)

    def quality(self, summaries: Sequence[Summary]) -> float:
        """Return the next-token probability over all ranks."""
        return next_token_probability(summaries)

    def exhibit_model(self, model: nn.Module, device: torch.device, seed: int) -> Exhibits:
        """Return beginnings of the validation text, and how the model continues them."""
        split = self._splits.split("val")
        windows = TokenWindows(split, self._settings.context)
        assert isinstance(model, Transformer)
        text = readable(split.index, self._settings.tokenizer)
        return continued(model, windows, text, device, seed)

    def validation_loss(self, summaries: Sequence[Summary]) -> float:
        """Return the mean loss of a token over all ranks."""
        return token_loss(summaries)
