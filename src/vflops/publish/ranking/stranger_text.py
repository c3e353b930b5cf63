"""Words of strangers as they may stand in a page."""

from __future__ import annotations

import unicodedata

SHORT, LONG = 80, 300
"""Signs of a name, and of a sentence."""
_MARKS = 2
"""Accents on one letter; more of them in a row would paint over the lines above."""
_UNSEEN = "\N{REPLACEMENT CHARACTER}"


def clean(text: object, most: int = SHORT) -> str:
    """``text`` in one line of at most ``most`` signs, none of them unseen or turning it round.

    Control signs, those that change the direction of writing, halves of surrogates and signs
    without a meaning become one that is seen. Escaping for HTML is left to the page.
    """
    whole = str(text)[: 8 * most]
    line = whole
    if not (whole.isascii() and whole.isprintable()) or "  " in whole or whole != whole.strip():
        line = " ".join(whole.split())
    if line.isascii() and line.isprintable() and len(line) <= most and len(whole) < 8 * most:
        return line  # most are so plain that no sign has to be looked at
    signs: list[str] = []
    marks = 0
    for sign in unicodedata.normalize("NFC", line):
        kind = unicodedata.category(sign)[0]
        marks = marks + 1 if kind == "M" else 0
        if marks <= _MARKS:
            signs.append(_UNSEEN if kind == "C" else sign)
    short = len(signs) <= most and len(str(text)) <= 8 * most
    return "".join(signs) if short else "".join(signs[: most - 1]) + "…"
