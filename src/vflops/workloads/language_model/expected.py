"""Describes the expected text, from the index of packed data or from the settings."""

from __future__ import annotations

from pathlib import Path

from vflops.data.text.packed_text import PackedText
from vflops.data.text.text_recipe import BLOCK_TOKENS
from vflops.train.ensemble.predictions import prediction_bytes
from vflops.workloads.contract.expected_data import ExpectedData
from vflops.workloads.language_model.settings import LanguageSettings

_TARGET_BYTES = 8


def expected(settings: LanguageSettings) -> ExpectedData:
    """Return a description of the text that a run with these settings would use."""
    synthetic, context = settings.synthetic, settings.context
    vocabulary = synthetic.vocabulary
    tokens = [_whole_blocks(synthetic.train), _whole_blocks(synthetic.validation)]
    size = sum(tokens) * (2 if vocabulary <= 1 << 16 else 4)
    if settings.data is not None:
        index = PackedText.open(Path(settings.data)).index
        vocabulary = index.vocabulary
        tokens = [index.splits[name].tokens for name in ("train", "val")]
        size = sum(file.bytes for file in index.files())
    windows = [max(count - 1, 0) // context for count in tokens]
    kept = prediction_bytes((context, 1), _TARGET_BYTES * context)
    return ExpectedData.of(windows, size, kept, vocabulary=vocabulary)


def _whole_blocks(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS) * BLOCK_TOKENS
