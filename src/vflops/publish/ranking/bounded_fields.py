"""Types of fields with limits, for values from untrusted files."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, Field

from vflops.publish.ranking.stranger_text import LONG, clean


def _past_day(day: str) -> str:
    """Return ``day`` if it is a valid past day; tomorrow is allowed because of time zones."""
    if not re.fullmatch("20[0-9]{2}-[0-9]{2}-[0-9]{2}", day):
        raise ValueError("expected a day such as 2026-01-31")
    if date.fromisoformat(day) > datetime.now(UTC).date() + timedelta(days=1):
        raise ValueError(f"{day} is in the future")
    return day


Name = Annotated[str, AfterValidator(clean)]
Sentence = Annotated[str, AfterValidator(lambda text: clean(text, LONG))]
Day = Annotated[str, AfterValidator(_past_day)]
Speed = Annotated[float, Field(ge=0, le=1e24)]
"""Operations per second, up to a million times the fastest existing machine."""
Seconds = Annotated[float, Field(gt=0, le=1e9)]
"""At most about thirty years."""
Share = Annotated[float, Field(ge=0, le=100)]
Quality = Annotated[float, Field(ge=0, le=1e9)]
Sketch = Annotated[str, Field(pattern="^([0-9a-f]{12}){0,32}$")]
Number = Annotated[int, Field(ge=0, le=10**8)]
Steps = Annotated[int, Field(ge=0, le=10**12)]
Rate = Annotated[float, Field(ge=0, le=1e15)]
"""Samples per second."""
