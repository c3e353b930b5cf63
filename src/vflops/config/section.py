"""The base of every section of settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A group of settings; immutable, and unknown names are an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, validate_default=False, allow_inf_nan=False
    )
