"""Entries of a ranking: small, typed summaries of submissions with limits on every number."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from vflops.publish.ranking.bounded_fields import (
    Day,
    Name,
    Number,
    Quality,
    Seconds,
    Sentence,
    Share,
    Sketch,
    Speed,
)
from vflops.publish.ranking.entry_audits import JoinedAudits
from vflops.record.files.document import Data
from vflops.record.formats.job import DataKind

FORMAT = 11
"""The version of stored entries; submissions with older entries are read again."""


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
    """Valid FLOPS with a quality factor of at most 1, the figure ``vflops`` of ``results.figures``;
    for a search its operations per second, by which AIPerf ranks."""
    published: Speed | None = None
    """VFLOPS as published, with a factor above 1 for quality above the target; None for a search,
    and if the factor is infinite because an error is 0."""
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
    run_sha256: str = ""
    """The hash of its ``run.json``."""
    manifest_sha256: str = ""
    """The hash of its ``manifest.json``; empty if it has none."""
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
    key: Name | None = None
    """The key of a good signature, whether or not its owner is known."""
    challenge: Answered | None = None
    tally: Name = ""
    """How many of the rules that apply are met."""
    reasons: Annotated[tuple[Sentence, ...], Field(max_length=8)] = ()
    """Why none of its results rank; empty if it is verified and valid."""
    results: Annotated[tuple[Result, ...], Field(max_length=64)] = ()
    retry: bool = False
    """Whether it is read again by the next build, because this machine failed to read it."""
    audited: JoinedAudits | None = None
    """The audits of the run, which are not stored with the entry; None without any."""

    @property
    def submitters(self) -> set[str | None]:
        """The names and the key of whoever submitted the run."""
        challenged = self.challenge.submitter if self.challenge else None
        return {self.signer, self.key, challenged} - {None}
