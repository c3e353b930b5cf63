"""What a workload's data will be like, known before it is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vflops.record.formats.job import DataFacts

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class ExpectedData:
    """Data as settings or an index describe it."""

    facts: DataFacts
    size_bytes: int | None
    """Of all splits, packed."""
    kept_bytes: int | None
    """Of the predictions for one sample with what is true of it, as an ensemble keeps them."""

    @classmethod
    def of(
        cls, counts: Sequence[int], size_bytes: int, kept_bytes: int, **facts: int
    ) -> ExpectedData:
        """Splits of so many samples, in their order, and what else a model depends on."""
        splits = dict(zip(SPLITS, counts, strict=False))
        known = DataFacts(path="", synthetic=True, fingerprint="", facts=dict(facts), **splits)
        return cls(known, size_bytes, kept_bytes)
