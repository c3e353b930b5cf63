"""Escapes control characters, so that text from a file is safe to print on a terminal."""

from __future__ import annotations

import unicodedata


def printable(text: str, *, keep: str = "") -> str:
    """Return ``text`` with control characters escaped (``\\x1b``), except those in ``keep``.

    Unicode's invisible characters and those that change the writing direction are escaped too.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character in keep or _is_plain(character) else _escape(character)
        for character in text
    )


def _is_plain(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
