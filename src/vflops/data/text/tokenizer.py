"""Tokenizers: bytes, or a file of the library ``tokenizers``."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.text.token_index import Tokenizer, TokenType, stored_type, token_type
from vflops.errors import UsageError
from vflops.record.files.regular_file import read_regular

BYTES = "bytes"
_BYTE_SEPARATOR = 0xFF  # never occurs in UTF-8
_SEPARATORS = ("<|endoftext|>", "<|end_of_text|>", "<eos>", "</s>", "[SEP]")
"""Names of the token between documents, in order of preference."""
_MAX_FILE_BYTES = 1 << 28


@dataclass(frozen=True)
class TextTokenizer:
    """How text becomes tokens; it is sent to other processes, which open the file themselves."""

    file: Path | None
    """None for bytes."""
    vocabulary: int
    separator: int | None
    description: Tokenizer

    @classmethod
    def open(cls, name: str) -> TextTokenizer:
        """Return the tokenizer ``bytes``, or the one of a file ``tokenizer.json``."""
        if name == BYTES:
            return cls(None, 256, _BYTE_SEPARATOR, Tokenizer(name=BYTES))
        path = Path(name)
        library = _library(path)
        vocabulary = max(library.get_vocab(with_added_tokens=True).values(), default=0) + 1
        if vocabulary < 2:
            raise UsageError(f"{path} has a vocabulary of {vocabulary} tokens", hint=_EXPECTED)
        known = (library.token_to_id(text) for text in _SEPARATORS)
        separator = next((number for number in known if number is not None), None)
        sha256 = hashlib.sha256(_content(path)).hexdigest()
        return cls(path, vocabulary, separator, Tokenizer(name="tokenizers", sha256=sha256))

    @property
    def token_type(self) -> TokenType:
        """The type of stored tokens."""
        return token_type(self.vocabulary)

    def encode(self, documents: Sequence[bytes]) -> list[NDArray[Any]]:
        """Return the stored tokens of each document, which begin with the separator."""
        kind = stored_type(self.token_type)
        first = [] if self.separator is None else [self.separator]
        if self.file is None:
            return [np.frombuffer(bytes(first) + document, kind) for document in documents]
        texts = [document.decode() for document in documents]
        encodings = _library(self.file).encode_batch(texts, add_special_tokens=False)
        return [np.array(first + encoding.ids, kind) for encoding in encodings]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens of a file's tokenizer, with its special tokens."""
        assert self.file is not None
        text: str = _library(self.file).decode(list(tokens), skip_special_tokens=False)
        return text


_EXPECTED = f"expected {BYTES}, or a tokenizer.json of the library tokenizers"


@lru_cache(maxsize=2)
def _library(path: Path) -> Any:
    """Return the library's tokenizer; raise ``UsageError`` if it is not installed."""
    try:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # processes share the cores
        import tokenizers
    except ImportError as error:
        raise UsageError(
            f"the tokenizer {path} needs the package tokenizers, which is not installed",
            hint="pip install 'vflops[text]', or use --tokenizer bytes",
        ) from error
    content = _content(path)
    try:
        return tokenizers.Tokenizer.from_str(content.decode())
    except Exception as error:  # the library raises plain exceptions
        raise UsageError(f"{path} is not a tokenizer: {error}", hint=_EXPECTED) from error


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, max_bytes=_MAX_FILE_BYTES)
    except OSError as error:
        raise UsageError(
            f"cannot read the tokenizer {path}: {error.strerror or error}", hint=_EXPECTED
        ) from error
