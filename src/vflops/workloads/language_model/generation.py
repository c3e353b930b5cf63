"""Text that a trained model generates: continuations of beginnings of the validation text."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflops.data.sampler import mix
from vflops.data.text.readable_text import Readable
from vflops.data.text.token_windows import TokenWindows
from vflops.models.language.transformer import Transformer
from vflops.workloads.contract.workload import Exhibits
from vflops.workloads.language_model.exhibit import VERSION

PASSAGES = 3
MAX_TOKENS = 64
"""The most tokens of a beginning, and of a continuation."""
TEMPERATURE = 0.8
"""Logits are divided by it: below 1, likely tokens become likelier."""
TOP_K = 40
"""Only that many of the likeliest tokens are sampled."""
_STREAM = 7
"""Distinguishes these random numbers from others of the same seed."""


def continued(
    model: Transformer, windows: TokenWindows, text: Readable, device: torch.device, seed: int
) -> Exhibits:
    """Return beginnings of the validation text with the true and two generated continuations.

    One takes the likeliest token each time, the other samples. There is no cache of keys and
    values: the few tokens take a forward pass each.
    """
    size = max(min(windows.context // 2, MAX_TOKENS), 1)
    chosen = np.linspace(0, len(windows) - 1, min(PASSAGES, len(windows))).astype(np.int64)
    stored = np.empty((len(chosen), windows.context + 1), np.int64)
    windows.read(chosen, stored)
    beginnings, true = stored[:, :size], stored[:, size : 2 * size]
    generator = torch.Generator().manual_seed(mix(seed, _STREAM) >> 1)
    tokens = torch.from_numpy(beginnings).repeat(2, 1)  # the first half greedy, the other sampled
    while tokens.shape[1] < size + true.shape[1]:
        logits = model.logits(tokens[:, -windows.context :].to(device)).cpu()
        following = next_tokens(logits, len(chosen), generator)
        tokens = torch.cat([tokens, following[:, None]], dim=1)
    greedy, sampled = tokens[:, size:].numpy().reshape(2, len(chosen), -1)
    return {
        "version": np.array(VERSION),
        "windows": chosen,
        "beginnings": _texts(beginnings, text),
        "true": _texts(true, text),
        "greedy": _texts(greedy, text),
        "sampled": _texts(sampled, text),
        "temperature": np.array(TEMPERATURE),
        "top_k": np.array(TOP_K),
    }


def next_tokens(logits: Tensor, greedy: int, generator: torch.Generator) -> Tensor:
    """Return a token for each row: the likeliest for the first ``greedy``, else a sampled one."""
    scores, candidates = logits.double().topk(min(TOP_K, logits.shape[1]), dim=1)
    shares = (scores[greedy:] / TEMPERATURE).softmax(dim=1)
    drawn = torch.multinomial(shares, 1, generator=generator)
    sampled = candidates[greedy:].gather(1, drawn)[:, 0]
    return torch.cat([candidates[:greedy, 0], sampled])


def _texts(rows: NDArray[np.int64], text: Readable) -> NDArray[np.str_]:
    return np.array([text(row.tolist()) for row in rows], dtype=np.str_)
