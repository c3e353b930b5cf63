"""Text from untrusted submissions, made safe for a page."""

from __future__ import annotations

import unicodedata

SHORT, LONG = 80, 300
"""The maximum number of characters of a name, and of a sentence."""
_MARKS = 2
"""Combining marks per letter; many in a row would cover the lines above."""
_UNSEEN = "\N{REPLACEMENT CHARACTER}"


def clean(text: object, most: int = SHORT) -> str:
    """Return ``text`` as one line of at most ``most`` visible characters.

    Control characters, those that change the direction of writing, lone surrogates and unassigned
    characters are replaced by a visible one. Escaping for HTML is left to the page.
    """
    start = str(text)[: 8 * most]
    line = start
    if not (start.isascii() and start.isprintable()) or "  " in start or start != start.strip():
        line = " ".join(start.split())
    if line.isascii() and line.isprintable() and len(line) <= most and len(start) < 8 * most:
        return line  # the common case, which needs no look at single characters
    characters: list[str] = []
    marks = 0
    for character in unicodedata.normalize("NFC", line):
        kind = unicodedata.category(character)[0]
        marks = marks + 1 if kind == "M" else 0
        if marks <= _MARKS:
            characters.append(_UNSEEN if kind == "C" else character)
    short = len(characters) <= most and len(str(text)) <= 8 * most
    return "".join(characters) if short else "".join(characters[: most - 1]) + "…"
