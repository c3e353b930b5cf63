"""The split of years into training, validation and test."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vflops.errors import UsageError

OPTIONS = "--{split}-years {years}"
"""The option of `vflops data pack` for the years of a split."""
_RANGE = re.compile(r"(\d{4})(?:-(\d{4}))?")


@dataclass(frozen=True)
class YearSplit:
    """The years of each split."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    test: tuple[int, ...]
    reference: bool
    """Whether this is the reference split of the rules."""

    @property
    def by_name(self) -> dict[str, tuple[int, ...]]:
        """The splits that have years, by name."""
        return {name: years for name, years in self.all.items() if years}

    @property
    def all(self) -> dict[str, tuple[int, ...]]:
        """The three splits by name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


def split_years(
    source: Path,
    years: Sequence[int],
    *,
    train: Sequence[int] | None = None,
    validation: Sequence[int] | None = None,
    test: Sequence[int] | None = None,
    option_format: str = OPTIONS,
) -> YearSplit:
    """Return the user's split, or by default the reference split.

    The reference split uses the last year for testing, the one before it for validation, and the
    others for training. A user's split needs ``validation``; ``train`` defaults to all other years,
    ``test`` to none. Hints write years in the ``option_format`` of the caller's command.
    """
    available = ", ".join(str(year) for year in years)
    if train is None and validation is None and test is None:
        if len(years) < 3:
            raise UsageError(
                f"{source} has {_count_text(len(years))} ({available}); the reference split needs "
                "3 or more: the last for testing, the one before it for validation, the others for "
                "training",
                hint=_split_hint(years, option_format),
            )
        ordered = tuple(sorted(years))
        return YearSplit(ordered[:-2], ordered[-2:-1], ordered[-1:], reference=True)
    splits = {"validation": tuple(validation or ()), "test": tuple(test or ())}
    taken = {year for group in splits.values() for year in group}
    rest = tuple(year for year in sorted(years) if year not in taken)
    splits["train"] = tuple(sorted(train)) if train is not None else rest
    _check_years(source, splits, years, available)
    for name in ("train", "validation"):
        if not splits[name]:
            hint = _split_hint(years, option_format, splits["test"])
            raise UsageError(
                f"the split of {source} has no years for {name}",
                hint=f"the folder has {available}: {hint}",
            )
    return YearSplit(
        splits["train"], tuple(sorted(splits["validation"])), tuple(sorted(splits["test"])), False
    )


def _check_years(
    source: Path, splits: dict[str, tuple[int, ...]], years: Sequence[int], available: str
) -> None:
    seen: dict[int, str] = {}
    for name, group in splits.items():
        for year in group:
            if year not in years:
                raise UsageError(
                    f"the split names {year} for {name}, but {source} has no climo_{year}.h5",
                    hint=f"it has {available}",
                )
            if year in seen:
                raise UsageError(
                    f"the split names {year} twice: for {seen[year]} and for {name}",
                    hint="use a year in one split only: quality on training years says nothing",
                )
            seen[year] = name


def _count_text(number: int) -> str:
    return f"{number} year{'s' * (number != 1)}"


def _split_hint(years: Sequence[int], option_format: str, test: Sequence[int] = ()) -> str:
    if len(years) < 2:
        return "add years: one year cannot both train and validate"
    left = [year for year in years if year not in test]
    options = two_year_options(left if len(left) > 1 else years, option_format)
    return f"add years, or give a split: {options}"


def two_year_options(years: Sequence[int], option_format: str = OPTIONS) -> str:
    """Return the options that train on the first and validate on the last of some years."""
    train = option_format.format(split="train", years=min(years))
    return f"{train} {option_format.format(split='validation', years=max(years))}"


def parse_years(text: str) -> tuple[int, ...]:
    """Return the years of a text such as ``1979-1983,1985``."""
    years: list[int] = []
    for part in text.replace(" ", "").split(","):
        match = _RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise UsageError(
                f"years {text!r}: {part!r} is not a year or a range", hint="as in 1979-1983,1985"
            )
        years += range(first, last + 1)
    return tuple(years)
