"""A description of a workload's data before it exists, for estimates and early checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vflops.record.formats.job import DataFacts

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class ExpectedData:
    """The data of a run, as described by its settings or by the index of packed data."""

    facts: DataFacts
    size_bytes: int | None
    """Size of all splits in packed form; None if unknown."""
    kept_bytes: int | None
    """Bytes that an ensemble stores per sample: the prediction and the label; None if unknown."""
    remarks: tuple[str, ...] = ()
    """What a plan says about the data, one sentence each."""

    @classmethod
    def of(
        cls, counts: Sequence[int], size_bytes: int, kept_bytes: int, **facts: int
    ) -> ExpectedData:
        """Return synthetic data with this many samples per split, in the order of ``SPLITS``.

        ``facts`` are other properties that a model depends on, such as the number of classes.
        """
        splits = dict(zip(SPLITS, counts, strict=False))
        data_facts = DataFacts(path="", synthetic=True, fingerprint="", facts=dict(facts), **splits)
        return cls(data_facts, size_bytes, kept_bytes)
