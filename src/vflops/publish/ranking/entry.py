"""What a ranking keeps of a submission: small, typed, every number within bounds."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from vflops.publish.ranking.stranger_text import LONG, clean
from vflops.record.files.document import Data

FORMAT = 5
"""Of the entries that a site keeps; others are read anew."""


def _past(day: str) -> str:
    """A day of the calendar that is not to come; tomorrow is today in some other place."""
    if not re.fullmatch("20[0-9]{2}-[0-9]{2}-[0-9]{2}", day):
        raise ValueError("expected a day such as 2026-01-31")
    if date.fromisoformat(day) > datetime.now(UTC).date() + timedelta(days=1):
        raise ValueError(f"{day} is still to come")
    return day


Name = Annotated[str, AfterValidator(clean)]
Sentence = Annotated[str, AfterValidator(lambda text: clean(text, LONG))]
Day = Annotated[str, AfterValidator(_past)]
Speed = Annotated[float, Field(ge=0, le=1e24)]
"""In operations a second: a million times the fastest machine there is."""
Seconds = Annotated[float, Field(gt=0, le=1e9)]
"""Thirty years."""
Share = Annotated[float, Field(ge=0, le=100)]
Quality = Annotated[float, Field(ge=0, le=1e9)]
Number = Annotated[int, Field(ge=0, le=10**8)]

DataKind = Literal["real", "synthetic"]


class Result(Data):
    """What one submission reached in one workload; of repeats the mean, never the best."""

    workload: Name
    goal: Name
    """The quality that was aimed at and what a miss costs: others are not comparable."""
    data: DataKind
    unit: Literal["VFLOPS", "regulated FLOPS"]
    score: Speed
    time_s: Seconds
    to_target_s: Seconds | None
    quality: Quality | None
    accelerators: Number
    """0 on processors alone."""
    ranks: Number
    """Processes that train: one an accelerator, or a share of the processor."""
    device: Name
    per_watt: Annotated[float, Field(ge=0, le=1e24)] | None
    efficiency: Share | None
    """Of the measured ceiling."""
    repeats: Number
    problem: Name
    """The data, and the operations of a sample: what a list has in common, unless a paper says."""
    length: Name
    """For how long it was to train: who trains for longer gets better, and is in another list."""
    reason: Sentence | None = None
    """Why it cannot rank, whatever the rules say of its run."""


class SystemFact(Data):
    """One thing that is known of a system."""

    name: Name
    value: Name


class Entry(Data):
    """One submission: who, on what, with which verdicts; or why it could not be read."""

    place: Sentence
    """Where it was found, below the folder that was named."""
    source: Name
    run: Name = ""
    digest: str = ""
    """Of what it recorded, where that is verified: the same for two copies of one run."""
    course: str = ""
    """Of the moments at which its jobs noted something: no two runs have the same."""
    day: Day | None = None
    profile: Name = ""
    rule_set: Name = ""
    level: Name = ""
    system: Name = ""
    facts: Annotated[tuple[SystemFact, ...], Field(max_length=24)] = ()
    framework: Name = ""
    signer: Name | None = None
    tally: Name = ""
    """How many rules it meets."""
    reasons: Annotated[tuple[Sentence, ...], Field(max_length=8)] = ()
    """Why nothing of it ranks; none: it is verified and valid."""
    results: Annotated[tuple[Result, ...], Field(max_length=64)] = ()
