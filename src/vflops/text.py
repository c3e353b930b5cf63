"""Text from a record as a terminal may show it: whoever wrote it, it gives no orders."""

from __future__ import annotations

import unicodedata


def printable(text: str, *, keep: str = "") -> str:
    """``text`` with control characters written out (``\\x1b``), but for those in ``keep``.

    Of Unicode too: signs that turn the direction of what follows, or that nobody sees.
    """
    if text.isprintable():
        return text
    return "".join(each if each in keep or _is_plain(each) else _written(each) for each in text)


def _is_plain(sign: str) -> bool:
    return sign.isprintable() or unicodedata.category(sign) == "Zs"


def _written(sign: str) -> str:
    return sign.encode("unicode_escape").decode()
