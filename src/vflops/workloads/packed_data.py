"""Checks that all workloads with packed data share."""

from __future__ import annotations

from typing import Any

from vflops.config.training import TrainSettings
from vflops.data.packed_folder import PackedFolder
from vflops.errors import CheckFailed, UsageError
from vflops.record.files.cache import cache_folder
from vflops.record.formats.job import DataFacts

_HASHED_BYTES = 1 << 30
"""Up to this size, data is hashed before training, which takes about a second. Larger data is
hashed only by `vflops data verify`."""


def check_unchanged(packed: PackedFolder[Any], facts: DataFacts) -> None:
    """Raise ``UsageError`` if this is not the data that the job began with."""
    if packed.fingerprint != facts.fingerprint:
        raise UsageError(
            f"{facts.path} has changed since this run began",
            hint="start a new run, or restore the original data",
        )


def check_intact(packed: PackedFolder[Any]) -> None:
    """Raise ``UsageError`` if files differ from the index; large ones are compared by size only."""
    if sum(file.bytes for file in packed.index.files()) > _HASHED_BYTES:
        return
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
