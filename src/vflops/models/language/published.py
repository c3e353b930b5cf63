"""Published transformers by name, for counting."""

from __future__ import annotations

from torch import Tensor

from vflops.models.language.transformer import Transformer
from vflops.models.language.transformer_design import PUBLISHED


def published_transformer(name: str) -> Transformer:
    """Return a published transformer with initial weights."""
    return Transformer(PUBLISHED[name])


def mean_loss(losses: Tensor) -> Tensor:
    """Return the mean loss of the tokens that a transformer returns the losses of."""
    return losses.mean()
