"""Decoder-only transformers in the styles of GPT-2 and Llama.

The model maps tokens and the tokens that follow them to the loss of each token. So no logits leave
it: their gradient can be computed where they are made.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from vflops.models.language.activations import activated
from vflops.models.language.divided_vocabulary import RowRanks, divided_lookup, divided_losses
from vflops.models.language.experts import BALANCE, Experts
from vflops.models.language.token_losses import operand_dtype, token_losses, wide
from vflops.models.language.transformer_design import TransformerDesign

_EPSILON = 1e-5
_DEVIATION = 0.02
"""The standard deviation of initial weights (Radford et al. 2019)."""
_ATTENTION = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
"""The kernels of attention on NVIDIA GPUs, the fastest first."""


class Transformer(nn.Module):
    """A decoder-only transformer with its loss."""

    def __init__(self, design: TransformerDesign) -> None:
        super().__init__()
        self.design = design
        self.embedding = TokenEmbedding(design.vocabulary, design.width)
        self.positions = Positions(design.context, design.width) if design.has_positions else None
        self.rotations = None if design.has_positions else Rotations(design)
        self.layers = nn.ModuleList(Layer(design) for _ in range(design.layers))
        self.norm = _norm(design, design.width)
        self.head = Head(design)
        if design.tied:
            self.head.weight = self.embedding.weight
        self.initialise()

    def initialise(self) -> None:
        """Draw the weights as GPT-2 does: layers that end in the residual sum have smaller ones."""
        last = _DEVIATION / math.sqrt(2 * self.design.layers)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                ends = name.endswith(("attention.out.weight", "down.weight"))
                nn.init.normal_(parameter, std=last if ends else _DEVIATION)

    def hidden_matrices(self) -> list[nn.Parameter]:
        """Return the weights of the layers' products, whose steps Muon orthogonalises."""
        named = self.named_parameters()  # a rank of a pipeline may have no layers
        return [p for name, p in named if name.startswith("layers.") and p.ndim > 1]

    def hidden(self, tokens: Tensor) -> Tensor:
        """Return the states (samples, tokens, width) from which the next tokens are predicted."""
        return self._states(tokens)[0]

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return −ln p of each target (samples, tokens); in training, experts add their balance."""
        states, balance = self._states(tokens)
        losses: Tensor = self.head(states, targets, balance)
        return losses

    def logits(self, tokens: Tensor) -> Tensor:
        """Return the scores of the token after the last one, for generation."""
        return wide(functional.linear(self.hidden(tokens)[:, -1], self.head.weight))

    def _states(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the hidden states, and the sum of the layers' balancing losses with experts.

        A pipeline is cut between the modules that this calls, and inside of ``Layer``.
        """
        x = self.embedding(tokens)
        if self.positions is not None:
            x = self.positions(x)
        turns = None if self.rotations is None else self.rotations(tokens)
        x = _narrowed(x)
        balance: Tensor | None = None
        for layer in self.layers:
            x, balance = layer(x, turns, balance)
        return self.norm(x), balance


@fx.wrap
def _narrowed(x: Tensor) -> Tensor:
    return x.to(operand_dtype(x) or x.dtype)


class TokenEmbedding(nn.Embedding):
    """The states of the tokens; ranks may divide its rows."""

    traced_whole = True
    row_ranks: RowRanks | None = None

    def forward(self, input: Tensor) -> Tensor:
        """Return the row of each token."""
        if self.row_ranks is None:
            return super().forward(input)
        return divided_lookup(input, self.weight, self.row_ranks)


class Positions(nn.Embedding):
    """Learned positions."""

    traced_whole = True  # depends on the number of tokens

    def forward(self, input: Tensor) -> Tensor:
        """Return states (samples, tokens, width) plus their positions."""
        return input + self.weight[: input.shape[1]]


class Rotations(nn.Module):
    """Rotary positions."""

    traced_whole = True

    def __init__(self, design: TransformerDesign) -> None:
        super().__init__()
        self._design = design

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the rotations of the tokens' positions."""
        return rotations(tokens.shape[1], self._design, tokens.device)


class Head(nn.Linear):
    """The output layer with the loss of each token, so that no logits leave it.

    Ranks may divide its rows.
    """

    traced_whole = True
    row_ranks: RowRanks | None = None

    def __init__(self, design: TransformerDesign) -> None:
        super().__init__(design.width, design.vocabulary, bias=False)
        self._balance = BALANCE / design.layers

    def forward(  # type: ignore[override]
        self, states: Tensor, targets: Tensor, balance: Tensor | None
    ) -> Tensor:
        """Return −ln p of each target; in training, plus the mean balance of the layers."""
        hidden, flat = states.flatten(0, 1), targets.flatten()
        if self.row_ranks is None:
            losses = token_losses(hidden, self.weight, flat)
        else:
            losses = divided_losses(hidden, self.weight, flat, self.row_ranks)
        losses = losses.view_as(targets)
        if self.training and balance is not None:
            losses = losses + self._balance * balance
        return losses


class Layer(nn.Module):
    """Attention and an MLP, or experts; each reads a norm of the residual sum and adds to it."""

    def __init__(self, design: TransformerDesign) -> None:
        super().__init__()
        self.attention_norm = _norm(design, design.width)
        self.attention = Attention(design)
        self.mlp_norm = _norm(design, design.width)
        self.mlp: nn.Module = Experts(design) if design.experts else Mlp(design)
        self._has_experts = design.experts > 0

    def forward(
        self, x: Tensor, turns: Tensor | None, balance: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the sum after this layer; with experts, also the balances up to this layer."""
        x = x + self.attention(self.attention_norm(x), turns)
        inner = self.mlp(self.mlp_norm(x))
        if not self._has_experts:
            return x + inner, balance
        return x + inner[0], inner[1] if balance is None else balance + inner[1]


class Attention(nn.Module):
    """Causal attention of several heads; groups of heads may share keys and values."""

    traced_whole = True  # depends on the shape of its input
    channel_pairs = (("qkv", "out"),)
    channel_sections: ClassVar[dict[str, tuple[str, ...]]] = {
        "qkv": ("heads", "kv_heads", "kv_heads")
    }
    channel_shared = ("query_norm", "key_norm")

    def __init__(self, design: TransformerDesign) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_width = (
            design.heads,
            design.kv_heads,
            design.head_width,
        )
        columns = (self.heads + 2 * self.kv_heads) * self.head_width
        self.qkv = nn.Linear(design.width, columns, bias=False)
        self.out = nn.Linear(self.heads * self.head_width, design.width, bias=False)
        self.query_norm = _norm(design, self.head_width) if design.qk_norm else None
        self.key_norm = _norm(design, self.head_width) if design.qk_norm else None

    def forward(self, x: Tensor, turns: Tensor | None) -> Tensor:
        """Return the attended values."""
        # Split by columns and then into heads: so the gradients are put together by a fast kernel.
        columns = [heads * self.head_width for heads in (self.heads, self.kv_heads, self.kv_heads)]
        parts = self.qkv(x).split(columns, dim=-1)
        q, k, v = (part.unflatten(-1, (-1, self.head_width)) for part in parts)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        if turns is not None:
            q, k = turned(q, turns), turned(k, turns)
        q, k, v = (part.transpose(1, 2).to(v.dtype) for part in (q, k, v))
        with _fastest_attention(x):
            y = functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads
            )
        result: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return result


class Mlp(nn.Module):
    """GELU between two linear layers, or SwiGLU."""

    traced_whole = True
    channel_pairs = (("up", "gate", "down"),)

    def __init__(self, design: TransformerDesign) -> None:
        super().__init__()
        self.up = nn.Linear(design.width, design.mlp_width, bias=False)
        # A layer of its own: the gradient of half a product would have to be copied together.
        self.gate = (
            nn.Linear(design.width, design.mlp_width, bias=False) if design.is_gated else None
        )
        self.down = nn.Linear(design.mlp_width, design.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the MLP."""
        gate = None if self.gate is None else self.gate(x)
        result: Tensor = self.down(activated(self.up(x), gate))
        return result


def rotations(tokens: int, design: TransformerDesign, device: torch.device) -> Tensor:
    """Return cosine and sine of the angle of each position and pair of columns (2, tokens, …)."""
    half = design.head_width // 2
    exponents = torch.arange(half, device=device, dtype=torch.float32) / half
    positions = torch.arange(tokens, device=device, dtype=torch.float32)
    angles = positions[:, None] * (1.0 / design.rope_base**exponents)
    return torch.stack([angles.cos(), angles.sin()])


def turned(x: Tensor, turns: Tensor) -> Tensor:
    """Return heads (samples, tokens, heads, columns) turned by the angles of their positions.

    Column i forms a pair with column i + half, as in Llama's released code for Hugging Face.
    """
    cosine, sine = turns[:, None, :, None]
    first, second = wide(x).chunk(2, -1)
    pairs = [first * cosine - second * sine, second * cosine + first * sine]
    return torch.cat(pairs, -1).to(x.dtype)


def _norm(design: TransformerDesign, width: int) -> nn.Module:
    if design.style == "llama":
        return nn.RMSNorm(width, eps=_EPSILON)
    return nn.LayerNorm(width, eps=_EPSILON, bias=False)


def _fastest_attention(x: Tensor) -> AbstractContextManager[object]:
    if x.device.type != "cuda":
        return nullcontext()
    return sdpa_kernel(_ATTENTION, set_priority=True)
