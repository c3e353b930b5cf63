"""Checks that all workloads with packed data share."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeVar

from vflops.config.training import TrainSettings
from vflops.data.packed_folder import PackedFolder, PackedSplit
from vflops.errors import CheckFailed, UsageError, VflopsError
from vflops.record.files.cache import cache_folder
from vflops.record.formats.job import DataFacts

_HASHED_BYTES = 1 << 30
"""Up to this size, data is hashed before training, which takes about a second, so that damage is
found early. The samples of all data are compared with their digests as they are read."""

SPLIT_NAMES = {"val": "validation"}
"""Names of splits in the records of a job, where they differ from those of packed data."""

PackedType = TypeVar("PackedType", bound=PackedFolder[Any])


def split_contents(packed: PackedFolder[Any]) -> dict[str, str]:
    """Return the content hash of every split, by its name in the records of a job."""
    return {SPLIT_NAMES.get(name, name): sha256 for name, sha256 in packed.contents.items()}


def check_unchanged(packed: PackedFolder[Any], facts: DataFacts) -> None:
    """Raise ``UsageError`` if this is not the data that the job began with."""
    same_contents = not facts.contents or split_contents(packed) == facts.contents
    if packed.fingerprint != facts.fingerprint or not same_contents:
        raise UsageError(
            f"{facts.path} has changed since this run began",
            hint="start a new run, or restore the original data",
        )


def intact(packed: PackedType) -> PackedType:
    """Return the data with digests, which are added to small or synthetic data of older versions.

    Raise ``UsageError`` if files of such data differ from the index.
    """
    adds = packed.index.contents is None and (_is_small(packed) or packed.index.synthetic)
    if adds or _is_small(packed):
        _verify(packed)
    if adds:
        with suppress(VflopsError):  # the folder may be read-only: then nothing is compared
            return packed.add_contents()
    return packed


def read_splits(splits: Iterable[PackedSplit]) -> dict[str, PackedSplit]:
    """Return the splits whose samples are compared, by their names in the records of a job."""
    return {SPLIT_NAMES.get(s.name, s.name): s for s in splits if s.check is not None}


def _is_small(packed: PackedFolder[Any]) -> bool:
    size: int = sum(file.bytes for file in packed.index.files())
    return size <= _HASHED_BYTES


def check_intact(packed: PackedFolder[Any]) -> None:
    """Raise ``UsageError`` if files differ from the index; large ones are compared by size only."""
    if _is_small(packed):
        _verify(packed)


def _verify(packed: PackedFolder[Any]) -> None:
    try:
        packed.verify()
    except CheckFailed as error:
        in_cache = packed.path.resolve().is_relative_to(cache_folder().resolve())
        hint = f"delete the folder {packed.path}: it is recreated" if in_cache else error.hint
        raise UsageError(error.message, hint=hint) from error


def check_batch(train: TrainSettings, facts: DataFacts) -> None:
    """Raise ``UsageError`` if the batch is larger than the training set."""
    if train.batch > facts.train:
        raise UsageError(
            f"batch {train.batch} is larger than the data: {facts.train} training samples",
            hint=f"use --set train.batch={1 << (facts.train.bit_length() - 1)} or less",
        )


def require_target(target: float | None, what: str, example: float) -> None:
    """Raise ``UsageError`` if there is no target for the user's data: only they can know it."""
    if target is None:
        raise UsageError(
            f"there is no target quality for your own {what}",
            hint=f"set one, for example --set target={example:g}",
        )
