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
from vflops.errors import UsageError
from vflops.train.ensemble.predictions import prediction_bytes
from vflops.workloads.contract.expected_data import ExpectedData
from vflops.workloads.language_model.loss_floor import require_reachable_on
from vflops.workloads.language_model.raw_shards import raw_shards, require_no_vocabulary
from vflops.workloads.language_model.settings import LanguageSettings
from vflops.workloads.language_model.text_remarks import context_remarks

_TARGET_BYTES = 8


def expected(settings: LanguageSettings) -> ExpectedData:
    """Return a description of the text that a run with these settings would use."""
    synthetic, context = settings.synthetic, settings.context
    vocabulary = synthetic.vocabulary
    recipe: TextRecipe | None = TextRecipe(vocabulary=vocabulary, seed=synthetic.seed)
    tokens = [_whole_blocks(synthetic.train), _whole_blocks(synthetic.validation)]
    size = sum(tokens) * (2 if vocabulary <= 1 << 16 else 4)
    remarks: list[str] = []
    if settings.data is None:
        require_no_vocabulary(settings, "synthetic text")
    elif (shards := raw_shards(settings)) is not None:
        vocabulary = shards.vocabulary
        tokens = [sum(shard.tokens for shard in shards.splits[name]) for name in SPLITS]
        size = sum(shard.path.stat().st_size for _, _, shard in shards.shards)
        recipe = None
        remarks = [_headers_only(vocabulary, settings)]
    else:
        text = _packed(Path(settings.data), settings.tokenizer)
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
    return replace(data, remarks=tuple(remarks))


def _headers_only(vocabulary: int, settings: LanguageSettings) -> str:
    command = f"vflops data check {shlex.quote(settings.data or '')}"
    if settings.vocabulary is not None:
        command += f" --vocabulary {vocabulary}"
    return (
        "only the headers of the shards were read, not their tokens: a run refuses tokens of "
        f"{vocabulary:,} or more, the size of the vocabulary; {command} finds them"
    )


def _packed(path: Path, tokenizer: str) -> PackedText:
    if path.is_dir() and not (path / INDEX).is_file():
        raise UsageError(
            f"{path} is not packed: how many tokens its text has is known once it is tokenized",
            hint=f"vflops data pack {path} DEST --tokenizer {tokenizer}, then plan with "
            "--data DEST",
        )
    return PackedText.open(path)


def _whole_blocks(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS) * BLOCK_TOKENS
