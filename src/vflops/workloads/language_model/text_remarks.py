"""Remarks about text that a run accepts, for plans and for the start of a run."""

from __future__ import annotations

from pathlib import Path

from vflops.config.training import WorkloadSettings
from vflops.data.text.bin_shards import SPLITS
from vflops.data.text.packed_text import PackedText
from vflops.record.formats.job import DataFacts
from vflops.workloads.language_model.settings import LanguageSettings


def remarks(settings: WorkloadSettings, data: DataFacts) -> list[str]:
    """Return remarks about the text that a run has prepared, if it is the user's."""
    assert isinstance(settings, LanguageSettings)
    if settings.data is None:
        return []
    return context_remarks(PackedText.open(Path(data.path)), settings.context)


def context_remarks(text: PackedText, context: int) -> list[str]:
    """Return a remark if the context is longer than every document of the text."""
    lengths = [text.split(name).longest_document for name in SPLITS]
    known = [length for length in lengths if length is not None]
    if len(known) < len(lengths) or max(known) >= context:
        return []
    return [
        f"the context of {context:,} tokens is longer than every document; the longest has "
        f"{max(known):,} tokens, so every window spans several documents"
    ]
