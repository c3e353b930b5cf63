"""Windows of tokens, the samples that a language model trains on and is evaluated on.

The documents of a split follow each other in one stream, which is cut into windows of ``context``
tokens and the one after them. So each token but the first is predicted once, up to the last whole
window. A window may span documents: a context longer than every document is allowed, and the model
learns from the separator where a new one begins.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.packed_folder import SampleIndices
from vflops.data.packed_index import PACKING, PackingRecord
from vflops.data.text.packed_text import TokenSplit
from vflops.errors import UsageError, VflopsError
from vflops.record.files.cache import cache_folder


def require_a_window(split: str, path: Path | str, tokens: int, context: int) -> None:
    """Raise ``UsageError`` if a split of this many tokens is too short for one window."""
    if tokens <= context:
        raise UsageError(
            f"{split} in {path} has {tokens:,} tokens, too few for one window of {context:,} "
            "tokens and the next",
            hint=f"use a context of at most {max(tokens - 1, 0):,} tokens, add text, or hold out "
            "more of it when you pack it",
        )


def _users_folder(path: Path) -> Path | str:
    """Return the folder that text in the cache was made from; any other folder as it is."""
    if path.resolve().is_relative_to(cache_folder().resolve()):
        with suppress(VflopsError):
            return PackingRecord.read(path / PACKING).source
    return path


class TokenWindows:
    """The windows of a split; safe to read from several threads."""

    def __init__(self, split: TokenSplit, context: int) -> None:
        """Raise ``UsageError`` if the split is too short for one window."""
        if context < 1:
            raise UsageError(f"the context is {context} tokens", hint="give 1 or more")
        if split.tokens <= context:
            require_a_window(split.name, _users_folder(split.path), split.tokens, context)
        self.split = split
        self.context = context

    def __len__(self) -> int:
        return (self.split.tokens - 1) // self.context

    @property
    def predicted(self) -> int:
        """Number of tokens that all windows predict together, each once: 1 to ``predicted``."""
        return len(self) * self.context

    def read(self, indices: SampleIndices, out: NDArray[Any]) -> None:
        """Fill ``out``, (windows, context + 1) integers, with the given windows."""
        chosen = np.asarray(indices, dtype=np.int64)
        width = self.context + 1
        if out.shape != (len(chosen), width) or out.dtype.kind not in "iu" or out.itemsize < 4:
            raise ValueError(
                f"out is {out.dtype}{list(out.shape)}, expected 32 or 64-bit integers "
                f"[{len(chosen)}, {width}]"
            )
        if len(chosen) and not (chosen.min() >= 0 and chosen.max() < len(self)):
            raise IndexError(f"windows are numbered 0 to {len(self) - 1}")
        starts = chosen * self.context
        self.split.compare_range(starts, width)
        if len(chosen) and (last := int(starts.max())) == (len(self) - 1) * self.context:
            # What follows the last window is compared too, so that all of the split is.
            self.split.compare_range(np.array([last]), self.split.tokens - last)
        for row, start in zip(out, starts.tolist(), strict=True):
            self.split.copy(start, row)
