"""The published data is recognised by its numbers of samples, classes, sizes, years and split."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vflops.record.formats.job import DataFacts
from vflops.results.task.published_data import (
    CLIMATE,
    FINEWEB,
    IMAGENET,
    KnownContents,
    data_fault,
)

WANTED_IMAGES = "but the published data has 1,281,167 + 50,000 samples"
WANTED_FRAMES = (
    "but the published data has 25 or 26 years with 33,580 or 35,040 + 1,460 + 1,460 samples"
)


def images(**changes: Any) -> DataFacts:
    facts = {"classes": 1000, "short side": 256, **changes.pop("facts", {})}
    numbers = {"train": 1_281_167, "validation": 50_000, **changes}
    return DataFacts(path="/d", synthetic=False, fingerprint="0" * 64, facts=facts, **numbers)


def frames(
    years: int = 26, per_year: int = 1460, facts: dict[str, int | str] | None = None
) -> DataFacts:
    """Years from 1979 on in the reference split, as a run records them."""
    last = 1978 + years
    training = {1: "1979", 2: "1979 1980"}.get(years - 2, f"1979–{last - 2}")
    recorded = {
        "height": 768,
        "width": 1152,
        "split": "reference",
        "train years": training,
        "validation years": str(last - 1),
        "test years": str(last),
        **(facts or {}),
    }
    return DataFacts(
        path="/d",
        synthetic=False,
        fingerprint="0" * 64,
        train=per_year * (years - 2),
        validation=per_year,
        test=per_year,
        facts=recorded,
    )


def text(tokens: int = 10_145_500_000, vocabulary: int = 50_257) -> DataFacts:
    return DataFacts(
        path="/d",
        synthetic=False,
        fingerprint="0" * 64,
        train=tokens // 1024,
        validation=98_500_000 // 1024,
        facts={"vocabulary": vocabulary},
    )


def test_the_published_data_passes() -> None:
    assert data_fault(images(), IMAGENET) is None
    assert data_fault(frames(), CLIMATE) is None
    assert data_fault(frames(25), CLIMATE) is None  # all that are public
    assert data_fault(text(), FINEWEB) is None


def test_other_text_does_not_pass() -> None:
    assert data_fault(text(900_000_000), FINEWEB) == (
        "878,906 + 96,191 samples, but the published data has 9,765,625 to 10,156,250 + 87,890 to "
        "98,632 samples"
    )
    assert data_fault(text(vocabulary=256), FINEWEB) == (
        "vocabulary 256, but the published data has 50257"
    )


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (images(facts={"classes": 100}), "classes 100, but the published data has 1000"),
        (images(train=1_281_166), f"1,281,166 + 50,000 samples, {WANTED_IMAGES}"),
        (images(validation=49_999), f"1,281,167 + 49,999 samples, {WANTED_IMAGES}"),
        (images(test=100_000), f"1,281,167 + 50,000 + 100,000 samples, {WANTED_IMAGES}"),
        (images(skipped=2), "2 samples left out"),
    ],
)
def test_other_images_do_not_pass(data: DataFacts, fault: str) -> None:
    assert data_fault(data, IMAGENET) == fault


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (frames(3), f"3 years with 1,460 + 1,460 + 1,460 samples, {WANTED_FRAMES}"),
        (frames(4), f"4 years with 2,920 + 1,460 + 1,460 samples, {WANTED_FRAMES}"),
        (frames(24), f"24 years with 32,120 + 1,460 + 1,460 samples, {WANTED_FRAMES}"),
        (frames(27), f"27 years with 36,500 + 1,460 + 1,460 samples, {WANTED_FRAMES}"),
        (frames(per_year=365), f"26 years with 8,760 + 365 + 365 samples, {WANTED_FRAMES}"),
        (frames(facts={"height": 384}), "height 384, but the published data has 768"),
        (frames(facts={"split": "own"}), "split own, but the published data has reference"),
        (
            frames(facts={"train years": "1979 1985"}),
            f"4 years with 35,040 + 1,460 + 1,460 samples, {WANTED_FRAMES}",
        ),
    ],
)
def test_other_years_do_not_pass(data: DataFacts, fault: str) -> None:
    assert data_fault(data, CLIMATE) == fault


def test_facts_that_were_not_recorded_do_not_pass() -> None:
    unknown = images().model_copy(update={"facts": {}})
    assert data_fault(unknown, IMAGENET) == (
        "classes not recorded, but the published data has 1000"
    )


def test_known_content_hashes_are_required_of_data_that_was_packed_in_the_same_way() -> None:
    splits = {"train": "1" * 64, "validation": "2" * 64}
    known = KnownContents(packing=(("short side", 256),), splits=tuple(splits.items()))
    published = replace(IMAGENET, known=(known,))

    def fault(side: int, contents: dict[str, str]) -> str | None:
        facts: dict[str, int | float | str] = {"classes": 1000, "short side": side}
        data = images().model_copy(update={"facts": facts, "contents": contents})
        return data_fault(data, published)

    assert fault(256, splits) is None
    assert fault(256, splits | {"train": "3" * 64}) == (
        "its content hashes (train 333333333333, validation 222222222222) are not those of the "
        "published data"
    )
    assert fault(160, splits | {"train": "3" * 64}) is None  # nothing is known of this size
    assert fault(256, {}) is None  # a record of an older version
