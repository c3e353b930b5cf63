"""Two published language models, and the operations that others have counted for them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class DecoderConfig:
    """The sizes of a decoder with grouped-query attention and gated layers."""

    layers: int
    width: int
    heads: int
    key_heads: int
    head_width: int
    hidden: int
    """The width of a gated layer, or of one expert."""
    vocabulary: int
    experts: int = 0
    chosen: int = 0
    """The number of experts that each token is routed to."""
    normalized_heads: bool = False

    def with_layers(self, layers: int) -> DecoderConfig:
        """Return the same model with another number of layers."""
        return replace(self, layers=layers)


LLAMA2_7B = DecoderConfig(32, 4096, 32, 32, 128, 11008, 32_000)
QWEN3_30B_A3B = DecoderConfig(
    48, 2048, 32, 4, 128, 768, 151_936, experts=128, chosen=8, normalized_heads=True
)


class Attention(nn.Module):
    """Causal self-attention in which several query heads share a key head."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.head_width = config.head_width
        queries = config.heads * config.head_width
        keys = config.key_heads * config.head_width
        self.query = nn.Linear(config.width, queries, bias=False)
        self.key = nn.Linear(config.width, keys, bias=False)
        self.value = nn.Linear(config.width, keys, bias=False)
        self.output = nn.Linear(queries, config.width, bias=False)
        norm = nn.RMSNorm if config.normalized_heads else nn.Identity
        self.query_norm, self.key_norm = norm(config.head_width), norm(config.head_width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            layer(x).view(batch, length, -1, self.head_width)
            for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(
            self.query_norm(query).transpose(1, 2),
            self.key_norm(key).transpose(1, 2),
            value.transpose(1, 2),
            is_causal=True,
            enable_gqa=True,
        )
        y: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, length, -1))
        return y


class Gated(nn.Module):
    """A feed-forward layer with a gate."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.hidden, bias=False)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return y


class Experts(nn.Module):
    """Gated layers of which each token uses a few; an expert has room for its fair share."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.experts, self.chosen = config.experts, config.chosen
        self.router = nn.Linear(config.width, config.experts, bias=False)
        self.gate = nn.Parameter(torch.empty(config.experts, config.width, config.hidden))
        self.up = nn.Parameter(torch.empty(config.experts, config.width, config.hidden))
        self.down = nn.Parameter(torch.empty(config.experts, config.hidden, config.width))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        shares, chosen = self.router(tokens).softmax(-1).topk(self.chosen)
        expert = chosen.flatten()
        room = expert.numel() // self.experts
        is_chosen = expert[:, None] == torch.arange(self.experts)
        rank = (is_chosen.cumsum(0) - 1).gather(1, expert[:, None])[:, 0]
        slot = expert * room + rank.clamp(max=room - 1)
        token = torch.arange(expert.numel()) // self.chosen
        routed = tokens.new_zeros(self.experts * room, tokens.shape[-1])
        routed = routed.index_put((slot,), tokens[token]).view(self.experts, room, -1)
        mixed = functional.silu(routed @ self.gate) * (routed @ self.up) @ self.down
        returned = mixed.flatten(0, 1)[slot] * shares.reshape(-1, 1)
        y: Tensor = returned.view(*x.shape[:-1], self.chosen, -1).sum(-2)
        return y


class Block(nn.Module):
    """A layer: attention, then a gated layer or experts, each on a normalized input."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.attention_norm, self.feed_norm = nn.RMSNorm(config.width), nn.RMSNorm(config.width)
        self.attention = Attention(config)
        self.feed = Experts(config) if config.experts else Gated(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        y: Tensor = x + self.feed(self.feed_norm(x))
        return y


class Decoder(nn.Module):
    """A language model that predicts the next token at each position."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = nn.RMSNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        y: Tensor = self.head(self.norm(self.blocks(self.embedding(tokens))))
        return y


def llama2_7b() -> nn.Module:
    """Return Llama 2 7B, for the meta device."""
    return Decoder(LLAMA2_7B)


def qwen3_30b_a3b() -> nn.Module:
    """Return Qwen3-30B-A3B, for the meta device."""
    return Decoder(QWEN3_30B_A3B)
