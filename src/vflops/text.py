"""Text from files made safe for a terminal: control characters have no effect."""

from __future__ import annotations

import unicodedata


def printable(text: str, *, keep: str = "") -> str:
    """Return ``text`` with control characters escaped (``\\x1b``), except those in ``keep``.

    This includes Unicode's invisible characters and those that change the writing direction.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign in keep or _is_plain(sign) else _escaped(sign) for sign in text)


def _is_plain(sign: str) -> bool:
    return sign.isprintable() or unicodedata.category(sign) == "Zs"


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode()
