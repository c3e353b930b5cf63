"""Describes the expected text: from packed data, headers of shards, or the settings."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from vflops.data.packed_index import INDEX
from vflops.data.text.bin_shards import SPLITS
from vflops.data.text.packed_text import PackedText
from vflops.data.text.text_recipe import BLOCK_TOKENS, TextRecipe
from vflops.data.text.token_windows import require_a_window
from vflops.train.ensemble.predictions import prediction_bytes
from vflops.workloads.contract.expected_data import ExpectedData
from vflops.workloads.language_model.first_target import require_text_target
from vflops.workloads.language_model.loss_floor import require_reachable_on
from vflops.workloads.language_model.raw_shards import raw_shards, require_no_vocabulary
from vflops.workloads.language_model.settings import LanguageSettings
from vflops.workloads.language_model.text_remarks import context_remarks
from vflops.workloads.packed_data import check_batch

_TARGET_BYTES = 8


def expected(settings: LanguageSettings) -> ExpectedData | None:
    """Return a description of the text that a run with these settings would use.

    None if only reading the tokens tells: for text that is not tokenized yet, and for shards
    without a target, for which one is suggested.
    """
    synthetic, context = settings.synthetic, settings.context
    vocabulary = synthetic.vocabulary
    recipe: TextRecipe | None = TextRecipe(vocabulary=vocabulary, seed=synthetic.seed)
    tokens = [_whole_blocks(synthetic.train), _whole_blocks(synthetic.validation)]
    size = sum(tokens) * (2 if vocabulary <= 1 << 16 else 4)
    remarks: list[str] = []
    if settings.data is None:
        require_no_vocabulary(settings, "synthetic text")
    elif (shards := raw_shards(settings)) is not None:
        if settings.target is None:
            return None
        vocabulary = shards.vocabulary
        tokens = [sum(shard.tokens for shard in shards.splits[name]) for name in SPLITS]
        size = sum(shard.path.stat().st_size for _, _, shard in shards.shards)
        recipe = None
        remarks = [_headers_only(vocabulary, settings)]
    else:
        path = Path(settings.data)
        if not (path / INDEX).is_file():
            return None
        text = PackedText.open(path)
        require_text_target(settings.target, text)
        index, remarks = text.index, context_remarks(text, context)
        vocabulary = index.vocabulary
        tokens = [index.splits[name].tokens for name in SPLITS]
        size = sum(file.bytes for file in index.files())
        recipe = TextRecipe.from_dict(index.recipe) if index.recipe else None
    for name, count in zip(SPLITS, tokens, strict=True):
        require_a_window(name, settings.data or "synthetic text", count, context)
    windows = [(count - 1) // context for count in tokens]
    if recipe is not None:
        require_reachable_on(settings.target_probability, recipe, windows[1] * context)
    kept = prediction_bytes((context, 1), _TARGET_BYTES * context)
    data = ExpectedData.of(windows, size, kept, vocabulary=vocabulary)
    check_batch(settings.train, data.facts)
    return replace(data, remarks=tuple(remarks))


def _headers_only(vocabulary: int, settings: LanguageSettings) -> str:
    command = f"vflops data check {shlex.quote(settings.data or '')}"
    if settings.vocabulary is not None:
        command += f" --vocabulary {vocabulary}"
    return (
        "only the headers of the shards were read, not their tokens: a run refuses tokens of "
        f"{vocabulary:,} or more, the size of the vocabulary; {command} finds them"
    )


def _whole_blocks(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS) * BLOCK_TOKENS
