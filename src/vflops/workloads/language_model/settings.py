"""Settings of the language model, and its four profiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field, model_validator

from vflops.config.section import Section
from vflops.config.training import TrainSettings, WorkloadSettings
from vflops.models.language.transformer_design import PUBLISHED, Style, TransformerDesign

_MIN_CAPACITY = 0.01
"""With less, the tokens that experts compute are too few to be called a training of them."""


class TransformerSettings(Section):
    """The shape of the transformer; a ``preset`` gives all values that are not set."""

    preset: (
        Literal[
            "gpt2-124m",
            "gpt2-355m",
            "gpt2-774m",
            "gpt2-1558m",
            "llama-1b",
            "llama-8b",
            "mixtral-8x7b",
            "moe-8x124m",
        ]
        | None
    ) = None
    """A published shape; its context is a setting of its own."""
    style: Style = "gpt2"
    """``gpt2``: learned positions, LayerNorm, GELU; ``llama``: rotary positions, RMSNorm,
    SwiGLU."""
    layers: int = Field(default=12, ge=1, le=1000)
    width: int = Field(default=768, ge=2, le=1 << 16)
    heads: int = Field(default=12, ge=1, le=4096)
    kv_heads: int | None = Field(default=None, ge=1, le=4096)
    """Heads of keys and values, shared by groups of heads; None for as many as ``heads``."""
    mlp_width: int | None = Field(default=None, ge=1, le=1 << 18)
    """None for four times the width."""
    qk_norm: bool = False
    """Whether queries and keys are normalised."""
    tied: bool = True
    """Whether the output layer has the weights of the token embedding."""
    rope_base: float = Field(default=10_000.0, gt=1)
    """The longest rotary wavelength is 2π times nearly this many tokens."""
    experts: int = Field(default=0, ge=0, le=4096)
    """Experts of each layer in place of its MLP; 0 for none."""
    experts_per_token: int = Field(default=2, ge=1, le=64)
    capacity: float = Field(default=1.25, gt=0, le=1000)
    """Places of an expert relative to an even distribution of tokens; tokens beyond them skip
    it."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_preset(cls, values: Any) -> Any:
        name = values.get("preset") if isinstance(values, dict) else None
        if name not in PUBLISHED:
            return values
        design = PUBLISHED[name]
        names = set(cls.model_fields) - {"preset"}
        return {**{field: getattr(design, field) for field in names}, **values}

    @model_validator(mode="after")
    def _check_consistency(self) -> TransformerSettings:
        if self.width % self.heads:
            raise ValueError(
                f"width {self.width} cannot be divided into {self.heads} heads: the nearest width "
                f"that can is {max(round(self.width / self.heads), 1) * self.heads}"
            )
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(
                f"{self.heads} heads cannot share {self.kv_heads} heads of keys and values evenly: "
                "use a divisor of heads"
            )
        if self.style == "llama" and self.width // self.heads % 2:
            raise ValueError(
                f"heads of {self.width // self.heads} columns have no pairs to rotate: use an even "
                "width / heads"
            )
        if self.experts and self.experts_per_token > self.experts:
            raise ValueError(
                f"experts_per_token {self.experts_per_token} is above experts {self.experts}: use "
                f"at most {self.experts}"
            )
        if self.experts and self.capacity < _MIN_CAPACITY:
            raise ValueError(
                f"capacity {self.capacity:g} gives each expert less than {_MIN_CAPACITY:g} of its "
                "share of an even distribution, so nearly all tokens would skip their experts: use "
                f"{_MIN_CAPACITY:g} or more"
            )
        return self

    def design(self, vocabulary: int, context: int) -> TransformerDesign:
        """Return the design for a vocabulary and a context."""
        return TransformerDesign(
            style=self.style,
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            kv_heads=self.kv_heads or self.heads,
            mlp_width=self.mlp_width or 4 * self.width,
            vocabulary=vocabulary,
            context=context,
            tied=self.tied,
            qk_norm=self.qk_norm,
            rope_base=self.rope_base,
            experts=self.experts,
            experts_per_token=self.experts_per_token,
            capacity=self.capacity,
        )


class SyntheticTextSettings(Section):
    """The text that is generated if the user gives none."""

    vocabulary: int = Field(default=256, ge=48, le=1 << 20)
    train: int = Field(default=1 << 21, ge=1)
    """Tokens to train on, rounded up to whole blocks of 16,384."""
    validation: int = Field(default=1 << 16, ge=1)
    seed: int = Field(default=1, ge=0, lt=2**63)
    """The seed of the text only: repeated training runs use the same text."""
    target: float = Field(default=0.1, gt=0, lt=1)
    """The next-token probability that the profile's network reaches within its epochs."""


class LanguageSettings(WorkloadSettings):
    """A language model."""

    target: float | None = Field(default=None, gt=0, lt=1)
    """The next-token probability to reach, exp(−loss); None for that of the synthetic text."""
    context: int = Field(default=1024, ge=1, le=1 << 20)
    """Tokens per sample: each is predicted from those before it in the sample."""
    tokenizer: str = "bytes"
    """How a folder of text becomes tokens: ``bytes``, or a file ``tokenizer.json``."""
    held_out: float = Field(default=0.01, gt=0, lt=1)
    """The share of the documents of a folder of text that is held out for validation."""
    unreadable: Literal["fail", "skip"] = "fail"
    """What to do about text that is not UTF-8."""
    vocabulary: int | None = Field(default=None, ge=2, le=1 << 32)
    """Tokens of the vocabulary of ``.bin`` shards; None for that of GPT-2 or Llama 3, whichever
    their headers say. All other text has its own."""
    network: TransformerSettings = TransformerSettings()
    synthetic: SyntheticTextSettings = SyntheticTextSettings()

    @property
    def target_probability(self) -> float:
        """The user's target, or that of the synthetic text."""
        return self.synthetic.target if self.target is None else self.target


def tiny() -> LanguageSettings:
    """Takes seconds: two layers learn to nest and agree."""
    return LanguageSettings(
        context=64,
        network=TransformerSettings(layers=2, width=64, heads=4),
        synthetic=SyntheticTextSettings(
            vocabulary=64, train=1 << 18, validation=1 << 15, target=0.102
        ),
        train=TrainSettings(
            epochs=2,
            batch=16,
            optimizer="adamw",
            learning_rate=8e-3,
            betas=(0.9, 0.95),
            warmup_epochs=0.1,
            weight_decay=0.1,
        ),
    )


def laptop() -> LanguageSettings:
    """Takes about a minute on two cores: two layers in the style of Llama learn to copy."""
    return LanguageSettings(
        context=128,
        network=TransformerSettings(
            style="llama", layers=2, width=64, heads=4, mlp_width=128, qk_norm=True
        ),
        synthetic=SyntheticTextSettings(
            vocabulary=256, train=1 << 19, validation=1 << 16, target=0.085
        ),
        train=TrainSettings(
            epochs=3,
            batch=16,
            optimizer="muon",
            learning_rate=2e-2,
            momentum=0.95,
            betas=(0.9, 0.95),
            warmup_epochs=0.1,
            weight_decay=0.1,
            stop_at_target=True,
        ),
    )


def gpu() -> LanguageSettings:
    """Takes about two minutes on an H200: the layers of GPT-2 124M on text of 4,096 words."""
    return LanguageSettings(
        context=512,
        network=TransformerSettings(preset="gpt2-124m", qk_norm=True),
        synthetic=SyntheticTextSettings(
            vocabulary=4096, train=1 << 25, validation=1 << 20, target=0.047
        ),
        train=TrainSettings(
            epochs=1,
            batch=64,
            optimizer="muon",
            learning_rate=3e-3,
            momentum=0.95,
            betas=(0.9, 0.95),
            warmup_epochs=0.05,
            weight_decay=0.1,
            precision="mixed-bf16",
            readers=8,
        ),
    )


def reference() -> LanguageSettings:
    """The task of the public speed run: GPT-2 124M to a validation loss of 3.28 on FineWeb."""
    return LanguageSettings(
        target=0.03762825,
        context=1024,
        network=TransformerSettings(preset="gpt2-124m"),
        synthetic=SyntheticTextSettings(
            vocabulary=50_257, train=1 << 33, validation=10_485_760, target=0.03762825
        ),
        train=TrainSettings(
            epochs=1,
            batch=512,
            optimizer="adamw",
            learning_rate=1.8e-3,
            betas=(0.9, 0.95),
            warmup_epochs=0.02,
            weight_decay=0.1,
            precision="mixed-bf16",
            segments=100,
            readers=8,
        ),
    )


PROFILES: dict[str, Callable[[], LanguageSettings]] = {
    "tiny": tiny,
    "laptop": laptop,
    "gpu": gpu,
    "reference": reference,
}
