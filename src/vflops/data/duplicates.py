"""Find samples that occur twice: in training and validation, or with two labels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vflops.record.formats.job import Duplicates, EqualSamples

_DIGEST_BYTES = 16
"""Among a billion different samples, two share a digest with a probability of 10⁻²⁰."""
_EXAMPLES = 5


class Sample(NamedTuple):
    """A sample: its name, a digest of its content, and its label, if it has one."""

    name: str
    content: str
    label: Any = None


@dataclass(frozen=True)
class DuplicatePairs:
    """All pairs of samples with the same content."""

    leaks: list[EqualSamples]
    """Samples for evaluation, each with the first training sample of the same content."""
    contradictions: list[EqualSamples]
    """Samples, each with the first sample of the same content, whose label is another one."""

    def summary(self) -> Duplicates:
        """Return their numbers and the first few of them."""
        return Duplicates(
            leaked=len(self.leaks),
            leaks=tuple(self.leaks[:_EXAMPLES]),
            contradictory=len(self.contradictions),
            contradictions=tuple(self.contradictions[:_EXAMPLES]),
        )


def content_digest(data: bytes | memoryview) -> str:
    """Return a short digest of the content of a sample."""
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


def find_duplicates(train: Sequence[Sample], evaluated: Iterable[Sample]) -> DuplicatePairs:
    """Compare the samples for training and those for evaluation by content."""
    first: dict[str, Sample] = {}
    leaks: list[EqualSamples] = []
    contradictions: list[EqualSamples] = []

    def compare(sample: Sample) -> Sample:
        known = first.setdefault(sample.content, sample)
        if known.label != sample.label:
            contradictions.append(EqualSamples(sample=sample.name, same_as=known.name))
        return known

    for sample in train:
        compare(sample)
    in_train = set(first)
    for sample in evaluated:
        known = compare(sample)
        if sample.content in in_train:
            leaks.append(EqualSamples(sample=sample.name, same_as=known.name))
    return DuplicatePairs(leaks, contradictions)
