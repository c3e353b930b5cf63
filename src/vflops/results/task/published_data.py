"""The data that the papers train on, as far as a record can show it: numbers, sizes and split."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vflops.record.formats.job import DataFacts
from vflops.units import integer

_YEARS, _FRAMES_PER_YEAR = 26, 1460
"""HPC AI500 V2.0, section 4.1: 26 years of climate data, with 4 frames on each of 365 days."""


@dataclass(frozen=True)
class KnownContents:
    """The content hashes of published data that was packed in one way."""

    packing: tuple[tuple[str, int | str], ...]
    """Recorded facts that say how it was packed, such as ``("short side", 256)``."""
    splits: tuple[tuple[str, str], ...]
    """Name and content hash of each split."""


@dataclass(frozen=True)
class PublishedData:
    """What the papers state about a dataset."""

    samples: tuple[int, int, int]
    """Samples for training, validation and testing."""
    facts: tuple[tuple[str, int | str], ...]
    """Other recorded facts that the data must have."""
    years: int | None = None
    """The number of years, for data that is divided into years."""
    known: tuple[KnownContents, ...] = ()
    """Content hashes that were contributed. There are none yet, because the data was not at hand
    where vflops is developed; `vflops data verify` prints them for packed data. Different decoders
    give different pixels, so one packing may have several entries."""


IMAGENET = PublishedData(samples=(1_281_167, 50_000, 0), facts=(("classes", 1000),))
"""The numbers of images are in section IV.E of AIPerf; its networks have 1,000 outputs."""
CLIMATE = PublishedData(
    # No paper says which years are held out. The reference split is ours: the last year is for
    # testing, the one before it for validation.
    samples=(_FRAMES_PER_YEAR * (_YEARS - 2), _FRAMES_PER_YEAR, _FRAMES_PER_YEAR),
    facts=(("height", 768), ("width", 1152), ("split", "reference")),
    years=_YEARS,
)

PUBLISHED_DATA: dict[str, PublishedData] = {
    "image-classification": IMAGENET,
    "extreme-weather": CLIMATE,
    "automl": IMAGENET,
}
"""The published data by workload."""


def data_fault(data: DataFacts, published: PublishedData) -> str | None:
    """Return how ``data`` differs from the published data; None if nothing shows a difference.

    Content hashes are compared if some are known for the way in which the data was packed, and if
    the data has any. Otherwise, data of the same numbers and sizes passes.
    """
    if data.synthetic:
        return "synthetic data instead of the published data"
    if data.skipped:
        return f"{integer(data.skipped)} sample{'s' if data.skipped > 1 else ''} left out"
    for name, value in published.facts:
        if data.facts.get(name) != value:
            found = data.facts.get(name, "not recorded")
            return f"{name} {found}, but the published data has {value}"
    samples = (data.train, data.validation, data.test)
    years = _recorded_years(data) if published.years else None
    if samples != published.samples or years != published.years:
        found = _describe(samples, years)
        wanted = _describe(published.samples, published.years)
        return f"{found}, but the published data has {wanted}"
    known = [
        dict(k.splits) for k in published.known if dict(k.packing).items() <= data.facts.items()
    ]
    if known and data.contents and data.contents not in known:
        found = ", ".join(f"{name} {sha256[:12]}" for name, sha256 in data.contents.items())
        return f"its content hashes ({found}) are not those of the published data"
    return None


def _describe(samples: tuple[int, int, int], years: int | None) -> str:
    splits = samples if samples[2] else samples[:2]
    numbers = f"{' + '.join(map(integer, splits))} samples"
    return numbers if years is None else f"{years} year{'s' if years != 1 else ''} with {numbers}"


def _recorded_years(data: DataFacts) -> int:
    """Return the number of years of all splits, which are recorded as ``1979–2002`` or ``1979``."""
    texts = [str(text) for name, text in data.facts.items() if name.endswith(" years")]
    ranges = re.findall(r"(\d{4})(?:–(\d{4}))?", " ".join(texts))
    return sum(int(last or first) - int(first) + 1 for first, last in ranges)
