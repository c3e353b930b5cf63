"""Entries of a ranking: small, typed summaries of submissions with limits on every number."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from vflops.publish.ranking.stranger_text import LONG, clean
from vflops.record.files.document import Data
from vflops.record.formats.job import DataKind

FORMAT = 9
"""The version of stored entries; submissions with older entries are read again."""


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


class PowerEvidence(Data):
    """How the power of a result was measured, or why it cannot rank by energy."""

    power_w: Annotated[float, Field(gt=0, le=1e12)] | None = None
    """Mean power of what was measured."""
    scope: Name = ""
    """The measured parts of the machine; results with different scopes are not comparable."""
    method: Name = ""
    """The sensors: NVML, RAPL or an external meter."""
    reason: Sentence | None = None
    """Why there is no valid evidence; None if there is."""


class Result(Data):
    """The result of one submission in one workload: the mean of its repeats, never the best."""

    workload: Name
    goal: Name
    """Target quality and exponent; results with different goals are not comparable."""
    data: DataKind
    unit: Literal["VFLOPS", "OPS"]
    score: Speed
    """Valid FLOPS; for a search its operations per second, by which AIPerf ranks."""
    regulated: Speed | None = None
    """The regulated score of a search; None if it is not defined, because the error is 0."""
    time_s: Seconds
    to_target_s: Seconds | None
    quality: Quality | None
    accelerators: Number
    """0 if only processors were used."""
    ranks: Number
    """Training processes: one per accelerator, or several that share the processors."""
    nodes: Number = 1
    """The number of nodes that trained, by the records of the nodes."""
    device: Name
    per_watt: Annotated[float, Field(ge=0, le=1e24)] | None
    power: PowerEvidence
    efficiency: Share | None
    """FLOPS over the measured ceiling."""
    repeats: Number
    problem: Name
    """The data and the operations per sample, for runs without the rules of a paper."""
    length: Name
    """The planned length of training; each has its own list, since longer training adds quality."""
    reason: Sentence | None = None
    """Why the result cannot rank even if its run meets all rules; None if it can."""

    @property
    def no_energy_reason(self) -> str | None:
        """Why the result cannot rank by energy even if it ranks by performance."""
        if self.per_watt is None:
            return self.power.reason or "it has no figure per watt"
        return self.power.reason


class SystemFact(Data):
    """One fact of a system."""

    name: Name
    value: Name


class Answered(Data):
    """The challenge that a run answers, issued by a keeper whom the publisher trusts."""

    keeper: Name
    day: Day
    """The day on which it was issued."""
    submitter: Name
    nonce: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    number: Number

    @property
    def text(self) -> str:
        """Who challenged the submitter, and when."""
        return f"challenged by {self.keeper} on {self.day}"


class Entry(Data):
    """One submission: source, system, verdicts and results, or why it could not be read."""

    place: Sentence
    """The path of the submission below the folder that was searched."""
    source: Name
    run: Name = ""
    digest: str = ""
    """A hash of the verified files, equal for copies of a run."""
    course: str = ""
    """A hash of the times of all job events, which differs between any two runs."""
    durations: Sketch = ""
    """A sketch of the measured durations (`measured_sketch`), similar for copies of a run."""
    readings: Sketch = ""
    """A sketch of the sensor readings."""
    day: Day | None = None
    profile: Name = ""
    rule_set: Name = ""
    level: Name = ""
    system: Name = ""
    facts: Annotated[tuple[SystemFact, ...], Field(max_length=24)] = ()
    framework: Name = ""
    signer: Name | None = None
    challenge: Answered | None = None
    tally: Name = ""
    """How many of the rules that apply are met."""
    reasons: Annotated[tuple[Sentence, ...], Field(max_length=8)] = ()
    """Why none of its results rank; empty if it is verified and valid."""
    results: Annotated[tuple[Result, ...], Field(max_length=64)] = ()
    retry: bool = False
    """Whether it is read again by the next build, because this machine failed to read it."""
