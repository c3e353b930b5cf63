"""Decoder-only transformers in the styles of GPT-2 and Llama.

The model maps tokens and the tokens that follow them to the loss of each token. So no logits leave
it: their gradient can be computed where they are made.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from vflops.models.language.experts import BALANCE, Experts
from vflops.models.language.token_losses import operand_dtype, token_losses, wide
from vflops.models.language.transformer_design import TransformerDesign

_EPSILON = 1e-5
_DEVIATION = 0.02
"""The standard deviation of initial weights (Radford et al. 2019)."""
_GELU_LINEAR = 2 * math.sqrt(2 / math.pi)
_GELU_CUBIC = 0.044715 * _GELU_LINEAR
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
        self.embedding = nn.Embedding(design.vocabulary, design.width)
        self.positions = (
            nn.Embedding(design.context, design.width) if design.has_positions else None
        )
        self.layers = nn.ModuleList(Layer(design) for _ in range(design.layers))
        self.norm = _norm(design, design.width)
        self.head = nn.Linear(design.width, design.vocabulary, bias=False)
        if design.tied:
            self.head.weight = self.embedding.weight
        self.initialise()

    def initialise(self) -> None:
        """Draw the weights as GPT-2 does: layers that end in the residual sum have smaller ones."""
        last = _DEVIATION / math.sqrt(2 * self.design.layers)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                ends = name.endswith(("attention.out.weight", "down.weight", "down"))
                nn.init.normal_(parameter, std=last if ends else _DEVIATION)

    def hidden_matrices(self) -> list[nn.Parameter]:
        """Return the weights of the layers' products, whose steps Muon orthogonalises."""
        return [p for p in self.layers.parameters() if p.ndim > 1]

    def hidden(self, tokens: Tensor) -> Tensor:
        """Return the states (samples, tokens, width) from which the next tokens are predicted."""
        x = self.embedding(tokens)
        turns: Tensor | None = None
        if self.positions is not None:
            x = x + self.positions.weight[: tokens.shape[1]]
        else:
            turns = rotations(tokens.shape[1], self.design, tokens.device)
        x = x.to(operand_dtype(x) or x.dtype)
        for layer in self.layers:
            x = layer(x, turns)
        result: Tensor = self.norm(x)
        return result

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return −ln p of each target (samples, tokens); in training, experts add their balance."""
        hidden = self.hidden(tokens).flatten(0, 1)
        losses = token_losses(hidden, self.head.weight, targets.flatten()).view_as(targets)
        if self.training and self.design.experts:
            losses = losses + BALANCE * self._balance()
        return losses

    def logits(self, tokens: Tensor) -> Tensor:
        """Return the scores of the token after the last one, for generation."""
        return wide(self.head(self.hidden(tokens)[:, -1]))

    def _balance(self) -> Tensor:
        balances = [m.balance for m in self.modules() if isinstance(m, Experts)]
        return torch.stack([balance for balance in balances if balance is not None]).mean()


class Layer(nn.Module):
    """Attention and an MLP, or experts; each reads a norm of the residual sum and adds to it."""

    def __init__(self, design: TransformerDesign) -> None:
        super().__init__()
        self.attention_norm = _norm(design, design.width)
        self.attention = Attention(design)
        self.mlp_norm = _norm(design, design.width)
        self.mlp: nn.Module = Experts(design) if design.experts else Mlp(design)

    def forward(self, x: Tensor, turns: Tensor | None) -> Tensor:
        """Return the sum after this layer."""
        x = x + self.attention(self.attention_norm(x), turns)
        result: Tensor = x + self.mlp(self.mlp_norm(x))
        return result


class Attention(nn.Module):
    """Causal attention of several heads; groups of heads may share keys and values."""

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
        samples, tokens, _ = x.shape
        heads = self.qkv(x).view(samples, tokens, -1, self.head_width)
        q, k, v = heads.split([self.heads, self.kv_heads, self.kv_heads], dim=2)
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

    def __init__(self, design: TransformerDesign) -> None:
        super().__init__()
        self.up = nn.Linear(design.width, design.mlp_width, bias=False)
        # A layer of its own: the gradient of half a product would have to be copied together.
        self.gate = (
            nn.Linear(design.width, design.mlp_width, bias=False)
            if design.style == "llama"
            else None
        )
        self.down = nn.Linear(design.mlp_width, design.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the MLP."""
        up = self.up(x)
        inner = gelu(up) if self.gate is None else functional.silu(self.gate(x)) * up
        result: Tensor = self.down(inner)
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


def gelu(x: Tensor) -> Tensor:
    """Return GELU with its tanh approximation (Hendrycks and Gimpel 2016).

    On GPUs it is x times a sigmoid, the same function, since tanh takes longer there than reading
    and writing the numbers.
    """
    if x.device.type != "cuda":
        return functional.gelu(x, approximate="tanh")
    y = wide(x)
    return (y * torch.sigmoid(y * (_GELU_LINEAR + _GELU_CUBIC * y.square()))).to(x.dtype)


def _norm(design: TransformerDesign, width: int) -> nn.Module:
    if design.style == "llama":
        return nn.RMSNorm(width, eps=_EPSILON)
    return nn.LayerNorm(width, eps=_EPSILON, bias=False)


def _fastest_attention(x: Tensor) -> AbstractContextManager[object]:
    if x.device.type != "cuda":
        return nullcontext()
    return sdpa_kernel(_ATTENTION, set_priority=True)
