"""The design of a decoder-only transformer, and published designs by name (no torch)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

Style = Literal["gpt2", "llama"]


@dataclass(frozen=True)
class TransformerDesign:
    """The shape of a decoder-only transformer.

    ``gpt2``: learned positions, LayerNorm, GELU. ``llama``: rotary positions, RMSNorm, SwiGLU.
    """

    style: Style = "gpt2"
    layers: int = 12
    width: int = 768
    heads: int = 12
    kv_heads: int = 12
    """Heads of keys and values, each shared by ``heads / kv_heads`` heads of queries."""
    mlp_width: int = 3072
    vocabulary: int = 50257
    context: int = 1024
    tied: bool = True
    """Whether the output layer has the weights of the token embedding."""
    qk_norm: bool = False
    """Whether queries and keys are normalised."""
    rope_base: float = 10_000.0
    experts: int = 0
    """Experts of each layer, in place of its MLP; 0 for a dense network."""
    experts_per_token: int = 2
    capacity: float = 1.25
    """Places of an expert relative to an even distribution of the tokens; tokens beyond them skip
    the expert."""

    @property
    def head_width(self) -> int:
        """The width of a head."""
        return self.width // self.heads

    @property
    def has_positions(self) -> bool:
        """Whether positions are learned."""
        return self.style == "gpt2"

    @property
    def is_gated(self) -> bool:
        """Whether MLPs and experts are SwiGLU, with a gate beside their first product."""
        return self.style == "llama"

    def expert_places(self, tokens: int) -> int:
        """Return the number of places of an expert for a batch of ``tokens``."""
        return max(math.ceil(tokens * self.experts_per_token * self.capacity / self.experts), 1)


def _gpt2(layers: int, width: int, heads: int) -> TransformerDesign:
    return TransformerDesign(
        layers=layers, width=width, heads=heads, kv_heads=heads, mlp_width=4 * width
    )


_LLAMA_8B = TransformerDesign(
    style="llama",
    layers=32,
    width=4096,
    heads=32,
    kv_heads=8,
    mlp_width=14_336,
    vocabulary=128_256,
    context=8192,
    tied=False,
    rope_base=500_000.0,
)

PUBLISHED: dict[str, TransformerDesign] = {
    "gpt2-124m": _gpt2(12, 768, 12),
    "gpt2-355m": _gpt2(24, 1024, 16),
    "gpt2-774m": _gpt2(36, 1280, 20),
    "gpt2-1558m": _gpt2(48, 1600, 25),
    "llama-1b": TransformerDesign(
        style="llama",
        layers=16,
        width=2048,
        heads=32,
        kv_heads=8,
        mlp_width=8192,
        vocabulary=128_256,
        context=8192,
        rope_base=500_000.0,
    ),
    "llama-8b": _LLAMA_8B,
    # Mixtral itself has no capacity: no token is without a place.
    "mixtral-8x7b": replace(
        _LLAMA_8B, vocabulary=32_000, rope_base=1_000_000.0, experts=8, experts_per_token=2
    ),
    # Not a published model: experts of GPT-2's size, and the two best of them as in GShard.
    "moe-8x124m": TransformerDesign(experts=8, experts_per_token=2),
}
"""Published shapes: GPT-2 (Radford et al. 2019; linear layers without biases), Llama 3.2 1B and
Llama 3.1 8B, Mixtral 8x7B (Jiang et al. 2024), and GPT-2 124M with 8 experts in each layer."""
