"""The data that the papers train on, as far as a record can show it: numbers, sizes and split."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vflops.record.formats.job import DataFacts
from vflops.units import integer

_YEARS, _FRAMES_PER_YEAR = range(25, 27), 1460
"""HPC AI500 V2.0, section 4.1: 26 years of climate data, with 4 frames on each of 365 days. 25 of
them are public, so nobody can reach 26 without the owners of the data."""
_CONTEXT = 1024
"""The tokens of a sample in the reference task of language models."""

Samples = int | range
"""A number of samples, or all numbers that are accepted."""


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

    samples: tuple[Samples, Samples, Samples]
    """Samples for training, validation and testing."""
    facts: tuple[tuple[str, int | str], ...]
    """Other recorded facts that the data must have."""
    years: Samples | None = None
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
    samples=(
        range(_FRAMES_PER_YEAR * 23, _FRAMES_PER_YEAR * 24 + 1, _FRAMES_PER_YEAR),
        _FRAMES_PER_YEAR,
        _FRAMES_PER_YEAR,
    ),
    facts=(("height", 768), ("width", 1152), ("split", "reference")),
    years=_YEARS,
)

FINEWEB = PublishedData(
    # 103 shards of about 98.5 million tokens for training and one for validation, in the words of
    # the speed run. Their exact sizes are not known where vflops is developed.
    samples=(
        range(10_000_000_000 // _CONTEXT, 10_400_000_000 // _CONTEXT + 1),
        range(90_000_000 // _CONTEXT, 101_000_000 // _CONTEXT + 1),
        0,
    ),
    facts=(("vocabulary", 50_257),),
)
"""The sample of FineWeb with 10 billion tokens of GPT-2, which the public speed run trains on."""

PUBLISHED_DATA: dict[str, PublishedData] = {
    "image-classification": IMAGENET,
    "extreme-weather": CLIMATE,
    "automl": IMAGENET,
    "language-model": FINEWEB,
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
    years = recorded_years(data) if published.years else None
    fits = all(map(_fits, samples, published.samples))
    if published.years is not None and years is not None:
        fits = fits and _fits(years, published.years)
        fits = fits and sum(samples) == years * _FRAMES_PER_YEAR
    if not fits:
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


def _fits(count: int, accepted: Samples) -> bool:
    return count in accepted if isinstance(accepted, range) else count == accepted


def _describe(samples: tuple[Samples, Samples, Samples], years: Samples | None) -> str:
    splits = samples if samples[2] else samples[:2]
    numbers = f"{' + '.join(map(_described, splits))} samples"
    if years is None:
        return numbers
    return f"{_described(years)} year{'s' if years != 1 else ''} with {numbers}"


def _described(samples: Samples) -> str:
    if isinstance(samples, range):
        word = "or" if len(samples) == 2 else "to"
        return f"{integer(samples[0])} {word} {integer(samples[-1])}"
    return integer(samples)


def recorded_years(data: DataFacts) -> int:
    """Return the number of years of all splits, which are recorded as ``1979–2002`` or ``1979``."""
    texts = [str(text) for name, text in data.facts.items() if name.endswith(" years")]
    ranges = re.findall(r"(\d{4})(?:–(\d{4}))?", " ".join(texts))
    return sum(int(last or first) - int(first) + 1 for first, last in ranges)
