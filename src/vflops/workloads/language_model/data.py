"""Prepares the text of a job: the user's folder or shards, packed or not, or generated text."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from vflops.data.batch_memory import BatchMemory
from vflops.data.packed_index import digest
from vflops.data.sampler import Indices
from vflops.data.text import synthetic_text
from vflops.data.text.floor import floor_of
from vflops.data.text.index_shards import linked_shards
from vflops.data.text.pack_text import TextPacking, identity_of, pack, plan
from vflops.data.text.packed_text import PackedText, TokenSplit
from vflops.data.text.text_folder import TextFolder
from vflops.data.text.text_recipe import TextRecipe
from vflops.data.text.token_windows import TokenWindows
from vflops.data.text.tokenizer import TextTokenizer
from vflops.errors import Hint, UsageError
from vflops.record.files.cache import cache_entry
from vflops.record.formats.job import DataFacts, SampleUnit
from vflops.units import quantity
from vflops.workloads.contract.code import Progress
from vflops.workloads.language_model.first_target import require_text_target
from vflops.workloads.language_model.loss_floor import require_reachable
from vflops.workloads.language_model.raw_shards import (
    VOCABULARY_OPTION,
    raw_shards,
    require_no_vocabulary,
)
from vflops.workloads.language_model.settings import LanguageSettings, SyntheticTextSettings
from vflops.workloads.packed_data import (
    MAX_AUTO_PACK_BYTES,
    SPLIT_NAMES,
    JobSplits,
    check_batch,
    intact,
    open_unchanged,
    options_as_settings,
    split_contents,
)

_MAX_SYNTHETIC_TOKENS = 1 << 32


def recipe_of(synthetic: SyntheticTextSettings) -> TextRecipe:
    """Return the recipe of the generated text."""
    return TextRecipe(vocabulary=synthetic.vocabulary, seed=synthetic.seed)


def prepare(settings: LanguageSettings, progress: Progress) -> DataFacts:
    """Return the packed text that the job reads, after packing or generating it if needed."""
    if settings.data is None:
        require_no_vocabulary(settings, "synthetic text")
        text = PackedText.open(_synthetic(settings, progress))
    else:
        text = _users(Path(settings.data), settings, progress)
        require_text_target(settings.target, text)
    text = intact(text)
    index = text.index
    windows = {name: TokenWindows(text.split(name), settings.context) for name in ("train", "val")}
    floor = floor_of(windows["val"])
    held_out = index.splits["val"]
    facts: dict[str, int | float | str] = {
        "vocabulary": index.vocabulary,
        "tokens": windows["train"].predicted,
        "validation tokens": windows["val"].predicted,
        "tokenizer": index.tokenizer.name,
    }
    if held_out.text_bytes:
        facts["bytes per token"] = held_out.text_bytes / held_out.tokens
    if floor is not None:
        facts["floor"] = floor.loss
        if settings.data is not None and index.recipe is not None:  # else the settings say it
            facts |= TextRecipe.from_dict(index.recipe).facts()
        require_reachable(settings.target_probability, floor.loss)
    data = DataFacts(
        path=str(text.path.resolve()),
        synthetic=index.synthetic,
        fingerprint=text.fingerprint,
        contents=split_contents(text),
        parts={SPLIT_NAMES.get(name, name): split.samples for name, split in index.splits.items()},
        train=len(windows["train"]),
        validation=len(windows["val"]),
        skipped=sum(len(split.skipped) for split in index.splits.values()),
        facts=facts,
        unit=SampleUnit(name="tokens", count=settings.context),
    )
    check_batch(settings.train, data)
    return data


def _synthetic(settings: LanguageSettings, progress: Progress) -> Path:
    synthetic = settings.synthetic
    tokens = synthetic.train + synthetic.validation
    if tokens > _MAX_SYNTHETIC_TOKENS:
        raise UsageError(
            f"{tokens:,} synthetic tokens would take {quantity(2 * tokens, 'B')} or more",
            hint="give your text or shards of tokens with --data DIR (see docs/how-to/data.md for "
            "those of FineWeb), or use less: --set synthetic.train=N",
        )
    on_progress = partial(progress, "drawing text")
    on_wait = partial(progress, "waiting for a process that draws this text", 0, 1)
    return synthetic_text.cached_text(
        recipe_of(synthetic), synthetic.train, synthetic.validation, on_progress, on_wait
    )


def _users(path: Path, settings: LanguageSettings, progress: Progress) -> PackedText:
    """Return packed text, tokens in ``.bin`` shards, or a folder of text as packed text."""
    if (shards := raw_shards(settings)) is not None:
        with options_as_settings(VOCABULARY_OPTION):
            return linked_shards(shards, partial(progress, "hashing tokens"))
    if (path / "index.json").is_file():
        return PackedText.open(path)
    folder = TextFolder.open(path)
    if folder.size_bytes > MAX_AUTO_PACK_BYTES:
        raise UsageError(
            f"{path} has {quantity(folder.size_bytes, 'B')} of text",
            hint=Hint(
                "pack it once", f"vflops data pack {path} DEST --tokenizer {settings.tokenizer}"
            ),
        )
    packing = TextPacking(TextTokenizer.open(settings.tokenizer), settings.held_out)
    tasks = plan(folder, packing, settings.unreadable)
    name = digest([packing.settings(), settings.unreadable, identity_of(tasks)])
    with options_as_settings(
        {
            "--policy skip": "--set unreadable=skip",
            "--validation ": "--set held_out=",
            "--separator": f"vflops data pack {path} --separator",
        }
    ):
        return pack(
            folder,
            cache_entry(f"text-{name[:16]}"),
            packing,
            policy=settings.unreadable,
            on_progress=partial(progress, "packing text"),
        )


class TextSamples:
    """A split of packed text as windows of tokens."""

    def __init__(self, split: TokenSplit, context: int) -> None:
        self._windows = TokenWindows(split, context)

    def __len__(self) -> int:
        return len(self._windows)

    def read(self, indices: Indices, memory: BatchMemory) -> tuple[Tensor, ...]:
        """Return the tokens of windows, (windows, context + 1)."""
        shape = (len(indices), self._windows.context + 1)
        tokens = memory.buffer("tokens", shape, torch.int64)
        self._windows.read(indices, tokens.numpy())
        return (tokens,)


class JobText(JobSplits[TokenSplit]):
    """The text of a job."""

    def open_split(self, name: str) -> TokenSplit:
        """Open a split; raise ``UsageError`` if the text has changed."""
        return open_unchanged(PackedText, self.facts).split(name)
