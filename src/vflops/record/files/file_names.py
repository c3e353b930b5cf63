"""Which names a file of a run folder may have: plain, relative, and portable."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

_PUNCTUATION = str.maketrans("", "", "._+=@,-")
_MAX_PART_BYTES, MAX_PARTS = 100, 12
_MAX_CACHED_NAMES = 1024
"""Most names are the same in all runs, and a ranking reads many runs."""
_DEVICES = frozenset(
    ("con", "prn", "aux", "nul", *(f"{kind}{n}" for kind in ("com", "lpt") for n in range(10)))
)
"""Names that Windows reserves for devices, with any extension."""


@lru_cache(maxsize=_MAX_CACHED_NAMES)
def name_fault(name: str) -> str | None:
    """Return why ``name`` is not allowed for a file of a run folder; None if it is allowed."""
    parts = name.split("/")
    if name.startswith("/"):
        return "an absolute path"
    if ".." in parts:
        return "a path that leads out of the folder"
    if "" in parts or "." in parts or len(parts) > MAX_PARTS:
        return "not a plain path"
    for part in parts:
        letters = part.translate(_PUNCTUATION)  # only letters and digits may remain
        if part[0] in ".-" or (letters and not letters.isalnum()):
            return "a name with odd characters"
        if len(part.encode(errors="replace")) > _MAX_PART_BYTES:
            return f"a name of more than {_MAX_PART_BYTES} bytes"
        if part.endswith(".") or fold_name(part).partition(".")[0] in _DEVICES:
            return "a name that is not portable between file systems"
    return None


def fold_name(name: str) -> str:
    """Return a form that is equal for names that some file systems do not distinguish."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
