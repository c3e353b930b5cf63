"""Tokens as text for people: decoded, named by the grammar of synthetic text, or numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vflops.data.text.text_recipe import TextRecipe, Words
from vflops.data.text.token_index import TokenIndex
from vflops.data.text.tokenizer import BYTES, TextTokenizer
from vflops.errors import UsageError

Readable = Callable[[Sequence[int]], str]
"""Returns tokens as text."""

SEPARATOR = "¶"
"""Stands for the token between documents."""
_ONE_MEANING = (SEPARATOR, "copy", "again", ".", ",", "+", "=")
_OPEN, _CLOSE = "([{<", ")]}>"
_FORMS = "abcd"


def readable(index: TokenIndex, tokenizer: str) -> Readable:
    """Return how the tokens of packed text are shown; ``tokenizer`` is the one of the settings.

    If its file is missing or is not the one that the text was packed with, tokens are numbers.
    """
    if index.synthetic and index.recipe is not None:
        words = TextRecipe.from_dict(index.recipe).words
        return lambda tokens: " ".join(token_name(words, token) for token in tokens)
    if index.tokenizer.name == BYTES:
        return _decode_bytes
    if index.tokenizer.sha256 is not None:
        try:
            opened = TextTokenizer.open(tokenizer)
        except UsageError:
            return _numbers
        if opened.description == index.tokenizer:
            return opened.decode
    return _numbers


def token_name(words: Words, token: int) -> str:
    """Return the name of a token of synthetic text: ``noun7``, ``verb2a`` for a form of a verb."""
    if token < words.first_topic:
        return _ONE_MEANING[token]
    if token < words.first_open:
        return f"topic{token - words.first_topic}"
    if token < words.first_close:
        return _OPEN[token - words.first_open]
    if token < words.first_number:
        return _CLOSE[token - words.first_close]
    if token < words.first_verb:
        return str(token - words.first_number)
    if token < words.first_filler:
        stem, form = divmod(token - words.first_verb, words.forms)
        return f"verb{stem}{_FORMS[form]}"
    if token < words.first_noun:
        return f"filler{token - words.first_filler}"
    return f"noun{token - words.first_noun}"


def _decode_bytes(tokens: Sequence[int]) -> str:
    documents = bytes(tokens).split(b"\xff")  # never occurs in UTF-8
    return SEPARATOR.join(document.decode(errors="replace") for document in documents)


def _numbers(tokens: Sequence[int]) -> str:
    return " ".join(str(token) for token in tokens)
