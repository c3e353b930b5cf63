"""Small networks that together cover everything that the rules distinguish."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.counting.capture import InputSpec


def depthwise() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False),
        nn.ReLU6(),
        nn.Conv2d(16, 32, 1),
    )


def grouped() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(8, 24, 3, stride=2, padding=1, groups=2),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.Conv2d(24, 12, 5, padding=2, groups=4),
    )


class Attention(nn.Module):
    """A transformer layer on scaled-dot-product attention, with tokens embedded."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        self.query_key_value = nn.Linear(32, 96)
        self.output = nn.Linear(32, 32, bias=False)
        self.norm = nn.LayerNorm(32)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        batch, length, width = x.shape
        parts = self.query_key_value(x).view(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, length, width))
        y: Tensor = x + self.mlp(self.norm(x))
        return y


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)


def volume() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(2, 8, (3, 3, 2), stride=(1, 2, 1), padding=1), nn.ReLU(), nn.MaxPool3d(2)
    )


def transposed() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.ConvTranspose2d(8, 6, 4, stride=2, padding=1),
        nn.ConvTranspose2d(6, 4, 3, groups=1, dilation=2),
    )


class Recurrent(nn.Module):
    """Two bidirectional LSTM layers, and a classifier on the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, num_layers=2, bidirectional=True, batch_first=True)
        self.classifier = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(x)
        scores: Tensor = self.classifier(states[:, -1])
        return scores


class Frozen(nn.Module):
    """A part without gradients and one behind a detach: the backward pass visits neither."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.cut = nn.Linear(8, 8)
        self.unused = nn.Linear(8, 8)
        self.trained = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.cut(self.frozen(x)).detach()
        self.unused(x)
        scores: Tensor = self.trained(x)
        return scores


class WrittenInto(nn.Module):
    """Results written into parts of a buffer: gradients flow through the memory they share."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2d(3, 4, 3, padding=1)
        self.right = nn.Conv2d(3, 4, 3, padding=1)
        self.both = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        joined = x.new_zeros(x.shape[0], 8, *x.shape[2:])
        joined[:, :4] = self.left(x)
        joined[:, 4:] = self.right(x)
        y: Tensor = self.both(joined)
        return y


class Shared(nn.Module):
    """One weight used three times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.relu(self.layer(x))
        return x


CASES: dict[str, tuple[Callable[[], nn.Module], InputSpec]] = {
    "depthwise": (depthwise, InputSpec((3, 16, 16))),
    "grouped": (grouped, InputSpec((8, 12, 12))),
    "attention": (Attention, InputSpec((10,), "int64")),
    "encoder": (encoder, InputSpec((7, 32))),
    "3-D convolution": (volume, InputSpec((2, 8, 9, 10))),
    "transposed convolution": (transposed, InputSpec((3, 9, 9))),
    "LSTM": (Recurrent, InputSpec((6, 8))),
    "frozen": (Frozen, InputSpec((8,))),
    "written into": (WrittenInto, InputSpec((3, 6, 6))),
    "shared": (Shared, InputSpec((8,))),
}
