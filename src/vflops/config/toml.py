"""TOML as a user wrote it: read, or refused with what is wrong."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from vflops.errors import UsageError

NOT_TOML = (ValueError, RecursionError)
"""What ``tomllib`` raises: no TOML, no UTF-8, 5,000 digits; nested without end."""


def read_toml(path: Path) -> dict[str, Any]:
    """What a TOML file says, or an error that names the file and the place."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except NOT_TOML as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
