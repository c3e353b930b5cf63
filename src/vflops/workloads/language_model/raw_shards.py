"""Shards of tokens that a user gives without packing them, with the vocabulary of the settings."""

from __future__ import annotations

from pathlib import Path

from vflops.data.packed_index import INDEX
from vflops.data.text.bin_shards import BinFolder
from vflops.errors import UsageError
from vflops.workloads.language_model.settings import LanguageSettings
from vflops.workloads.packed_data import options_as_settings

VOCABULARY_OPTION = {"--vocabulary N": "--set vocabulary=N"}
"""The option of ``vflops data pack`` that errors name, and the setting of a run."""


def raw_shards(settings: LanguageSettings) -> BinFolder | None:
    """Open the shards that the settings name; None if they name packed text, or text to tokenize.

    Raise ``UsageError`` if there is a vocabulary for such text, which has its own.
    """
    path = Path(settings.data or "")
    if (path / INDEX).is_file():
        require_no_vocabulary(settings, "packed text")
    elif any(path.glob("*.bin")):
        with options_as_settings(VOCABULARY_OPTION):
            return BinFolder.open(path, settings.vocabulary)
    else:
        require_no_vocabulary(settings, "text that is tokenized")
    return None


def require_no_vocabulary(settings: LanguageSettings, what: str) -> None:
    """Raise ``UsageError`` if the vocabulary is set for text that has its own."""
    if settings.vocabulary is None:
        return
    hint = "leave it out"
    if settings.data is None:
        hint = f"--set synthetic.vocabulary={settings.vocabulary}"
    raise UsageError(
        f"vocabulary = {settings.vocabulary} is for .bin shards; {what} has its own", hint=hint
    )
