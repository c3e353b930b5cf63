"""The data of the papers, as far as a record can show it: numbers of samples, sizes and split."""

from __future__ import annotations

from dataclasses import dataclass

from vflops.record.formats.job import DataFacts
from vflops.units import integer


@dataclass(frozen=True)
class PublishedData:
    """What a paper states about its data."""

    samples: tuple[int, int] | None = None
    """Training and validation samples; None if the paper does not state them."""
    facts: tuple[tuple[str, int | str], ...] = ()
    """Other recorded facts that the data must have."""


IMAGENET = PublishedData(samples=(1_281_167, 50_000))
CLIMATE = PublishedData(facts=(("height", 768), ("width", 1152), ("split", "reference")))

PUBLISHED_DATA: dict[str, PublishedData] = {
    "image-classification": IMAGENET,
    "extreme-weather": CLIMATE,
    "automl": IMAGENET,
}
"""The published data by workload."""


def data_fault(data: DataFacts, published: PublishedData) -> str | None:
    """Return how ``data`` differs from the published data; None if nothing shows a difference.

    The pixels are not compared: data of the same numbers and sizes passes.
    """
    if data.synthetic:
        return "synthetic data instead of the published data"
    if data.skipped:
        return f"{integer(data.skipped)} sample{'s' if data.skipped > 1 else ''} left out"
    if published.samples and (data.train, data.validation) != published.samples:
        train, validation = published.samples
        used = f"{integer(data.train)} + {integer(data.validation)} samples"
        return f"{used}, but the published data has {integer(train)} + {integer(validation)}"
    for name, value in published.facts:
        if data.facts.get(name) != value:
            return f"{name} {data.facts.get(name)}, but the published data has {value}"
    return None
