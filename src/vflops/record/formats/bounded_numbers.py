"""Numbers in records, with limits: a record comes from a stranger, and its numbers size work.

The limits are far above all that is measured, and low enough that sums and products of such numbers
are finite and a loop over processes ends soon.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

MAX_PROCESSES = 1 << 16
"""The most ranks, nodes, models or workers, as in the settings."""
_MAX_INDEX = 10**9 - 1
_MAX_COUNT = (1 << 63) - 1
_MAX_OPERATIONS = 10**40

NonNegative = Annotated[int, Field(ge=0, le=_MAX_COUNT)]
"""A count of samples, steps or bytes, or an index from 0."""
Positive = Annotated[int, Field(ge=1, le=_MAX_COUNT)]
"""A count of at least one."""
Processes = Annotated[int, Field(ge=1, le=MAX_PROCESSES)]
"""A number of ranks, nodes, base models or workers."""
Index = Annotated[int, Field(ge=0, le=_MAX_INDEX)]
"""The number of a job or of an attempt, which is part of a path."""
Operations = Annotated[int, Field(ge=0, le=_MAX_OPERATIONS)]
Seconds = Annotated[float, Field(ge=0, le=1e15)]
