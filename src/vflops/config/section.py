"""The base of every section of settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Settings that belong together: immutable, and no name that is not known."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, validate_default=False, allow_inf_nan=False
    )
