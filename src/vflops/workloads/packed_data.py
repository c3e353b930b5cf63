"""What workloads with packed data refuse, whatever is packed."""

from __future__ import annotations

from typing import Any

from vflops.config.training import TrainSettings
from vflops.data.packed_folder import PackedFolder
from vflops.errors import CheckFailed, UsageError
from vflops.record.files.cache import cache_folder
from vflops.record.formats.job import DataFacts

_HASHED_BYTES = 1 << 30
"""Up to this much is read through before training, about a second; more by `vflops data verify`."""


def refuse_another(packed: PackedFolder[Any], facts: DataFacts) -> None:
    """Refuse data that is not what the job began with."""
    if packed.fingerprint != facts.fingerprint:
        raise UsageError(
            f"{facts.path} has changed since this run began",
            hint="start a new run, or put back the data that it began with",
        )


def refuse_damaged(packed: PackedFolder[Any]) -> None:
    """Refuse files that are not those of the index; small sets are read, large ones measured."""
    if sum(file.bytes for file in packed.index.files()) > _HASHED_BYTES:
        return
    try:
        packed.verify()
    except CheckFailed as error:
        own = packed.path.resolve().is_relative_to(cache_folder().resolve())
        hint = f"delete the folder, it is made again: {packed.path}" if own else error.hint
        raise UsageError(error.message, hint=hint) from error


def refuse_misfits(train: TrainSettings, facts: DataFacts) -> None:
    """Refuse a batch that the data cannot fill."""
    if train.batch > facts.train:
        raise UsageError(
            f"batch {train.batch} is larger than the data: {facts.train} training samples",
            hint=f"take --set train.batch={1 << (facts.train.bit_length() - 1)} or less",
        )


def require_target(target: float | None, what: str, example: float) -> None:
    """Refuse data of the user's without a target: only they know what can be reached on it."""
    if target is None:
        raise UsageError(
            f"the target quality of your own {what} is yours to give",
            hint=f"for example --set target={example:g}",
        )
