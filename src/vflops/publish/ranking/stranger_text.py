"""Text from untrusted submissions, made safe for a page."""

from __future__ import annotations

import unicodedata

SHORT, LONG = 80, 300
"""The maximum lengths of a name and of a sentence."""
_MAX_MARKS = 2
"""The maximum number of combining marks per letter; more would cover the lines above."""
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean(text: object, max_length: int = SHORT) -> str:
    """Return ``text`` as one line of at most ``max_length`` visible characters.

    Control characters, those that change the direction of writing, lone surrogates and unassigned
    characters are replaced by a visible one. Escaping for HTML is left to the page.
    """
    start = str(text)[: 8 * max_length]
    line = start
    if not (start.isascii() and start.isprintable()) or "  " in start or start != start.strip():
        line = " ".join(start.split())
    if (
        line.isascii()
        and line.isprintable()
        and len(line) <= max_length
        and len(start) < 8 * max_length
    ):
        return line  # the common case, without a loop over characters
    characters: list[str] = []
    marks = 0
    for character in unicodedata.normalize("NFC", line):
        category = unicodedata.category(character)[0]
        marks = marks + 1 if category == "M" else 0
        if marks <= _MAX_MARKS:
            characters.append(_REPLACEMENT if category == "C" else character)
    short = len(characters) <= max_length and len(str(text)) <= 8 * max_length
    return "".join(characters) if short else "".join(characters[: max_length - 1]) + "…"
