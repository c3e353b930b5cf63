"""Which documents are held out for validation: decided by their content alone."""

from __future__ import annotations

import hashlib

from vflops.errors import UsageError

VALIDATION_SHARE = 0.01
"""The share of documents that is held out by default."""

_SALT = b"vflops.text held-out\n"
"""Other programs that split by a hash of the same bytes hold out other documents."""


def check_share(share: float) -> None:
    """Raise ``UsageError`` unless ``share`` leaves documents on both sides."""
    if not 0.0 < share < 1.0:
        raise UsageError(
            f"the share for validation is {share:g}",
            hint="give a number between 0 and 1, for example 0.01",
        )


def is_held_out(document: bytes, share: float) -> bool:
    """Whether a document is for validation.

    Equal documents are on the same side, and adding or renaming files moves none. A larger share
    holds out all that a smaller one does.
    """
    digest = hashlib.sha256(_SALT + document).digest()
    return int.from_bytes(digest[:8], "big") < share * 2.0**64
