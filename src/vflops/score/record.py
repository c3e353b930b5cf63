"""``score.json``: every figure with the rules that it was made by."""

from __future__ import annotations

from typing import ClassVar

from vflops.record.measurement import Unit
from vflops.record.schema import Data, Document


class CeilingScore(Data):
    """One ceiling of the machine; its samples stay in the log."""

    benchmark: str
    case: str
    precision: str | None
    device: str
    unit: Unit
    value: float | None
    spread: float | None
    setting: dict[str, int | str]
    caveat: str | None
    reason: str | None


class RuleCount(Data):
    """Operations of one sample by one rule set."""

    rules: str
    rules_version: int
    ops_forward: int
    ops_backward: int
    ops_update: int
    ops_total: int
    uncounted_share: float
    """Elements touched by operators without a rule, of all elements touched."""


class BoundScore(Data):
    """What the ceilings allow a model at most."""

    precision: str
    rules: str
    batch: int
    flops: float
    samples_per_s: float
    bound_by: str
    bound_share: float
    """The part of the least time that this bound takes."""


class ModelScore(Data):
    """A counted model: its operations, and what bounds it here."""

    model: str
    parameters: int
    counts: tuple[RuleCount, ...]
    bound: BoundScore | None
    bound_reason: str | None


class Score(Document):
    """All figures of a run."""

    schema_name: ClassVar[str] = "vflops.score"

    run: str
    workload: str
    complete: bool
    incomplete_reason: str | None
    ceilings: tuple[CeilingScore, ...]
    models: tuple[ModelScore, ...]
