"""A target for the user's own text that a model reaches soon: that of the tokens' frequencies."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from vflops.data.text.packed_text import PackedText, TokenSplit
from vflops.errors import UsageError

_MAX_TOKENS = 1 << 24
"""Tokens that are counted of each split, which takes about a second."""


def first_target(text: PackedText) -> float:
    """Return the probability of a held-out token by frequency alone, rounded down to two digits.

    This is exp(−loss) of a model that ignores the context and gives each token its share of the
    training tokens; one is added to each count, because a held-out token may be new.
    """
    tokens, counts = np.unique(_first_tokens(text.split("train")), return_counts=True)
    held_out = _first_tokens(text.split("val"))
    places = np.minimum(np.searchsorted(tokens, held_out), len(tokens) - 1)
    seen = np.where(tokens[places] == held_out, counts[places], 0)
    total = int(counts.sum()) + text.index.vocabulary
    loss = math.log(total) - float(np.log(seen + 1.0).mean())
    return _rounded_down(math.exp(-loss))


def require_text_target(target: float | None, text: PackedText) -> None:
    """Raise ``UsageError`` if there is no target for the user's text; suggest one."""
    if target is None:
        example = first_target(text)
        raise UsageError(
            "there is no target quality for your own text: the probability of a token, exp(−loss)",
            hint=f"set one, for example --set target={example:g}, which a token has by its "
            "frequency alone",
        )


def _first_tokens(split: TokenSplit) -> NDArray[np.int64]:
    tokens = np.empty(min(split.tokens, _MAX_TOKENS), np.int64)
    split.copy(0, tokens)
    return tokens


def _rounded_down(value: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.floor(value / unit) * unit:.2g}")
