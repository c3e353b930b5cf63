"""The goal and the data of a handmade run that trained a language model."""

from __future__ import annotations

from vflops.record.formats.job import DataFacts, Goal, SampleUnit

NEXT_TOKEN = Goal(
    quality="next-token probability",
    better="higher",
    target=0.125,
    exponent=5,
    of_loss="exp(-loss)",
)


def text(**facts: float) -> DataFacts:
    """Return windows of 64 tokens, with these facts."""
    return DataFacts(
        path="/data",
        synthetic=True,
        fingerprint="0" * 64,
        train=1000,
        validation=200,
        facts=facts,
        unit=SampleUnit(name="tokens", count=64),
    )
