"""What all workloads with packed data share: checks, and the splits that a job reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

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

MAX_AUTO_PACK_BYTES = 2 << 30
"""The maximum size to pack automatically; beyond it the user must pack the data first."""

PackedType = TypeVar("PackedType", bound=PackedFolder[Any])
SplitType = TypeVar("SplitType", bound=PackedSplit)


class JobSplits(ABC, Generic[SplitType]):
    """The splits of a job's data, opened when they are first read."""

    def __init__(self, facts: DataFacts) -> None:
        self.facts = facts
        self._splits: dict[str, SplitType] = {}

    @abstractmethod
    def open_split(self, name: str) -> SplitType:
        """Open a split; raise ``UsageError`` if the data has changed."""

    def split(self, name: str) -> SplitType:
        """Return a split whose samples are compared; raise ``UsageError`` if it has changed."""
        if name not in self._splits:
            self._splits[name] = self.open_split(name).compare_contents()
        return self._splits[name]

    def read_splits(self) -> dict[str, PackedSplit]:
        """Return the splits that were opened and are compared."""
        return read_splits(self._splits.values())


def split_contents(packed: PackedFolder[Any]) -> dict[str, str]:
    """Return the content hash of every split, by its name in the records of a job."""
    return {SPLIT_NAMES.get(name, name): sha256 for name, sha256 in packed.contents.items()}


def open_unchanged(kind: type[PackedType], facts: DataFacts) -> PackedType:
    """Open the data of a job; raise ``UsageError`` if it is not what the job began with."""
    packed = kind.open(Path(facts.path))
    check_unchanged(packed, facts)
    return packed


def verify_unchanged(kind: type[PackedType], facts: DataFacts) -> None:
    """Raise ``UsageError`` if the data is not what the job began with, or is damaged."""
    check_intact(open_unchanged(kind, facts))


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

    Raise ``UsageError`` if files of such data differ from the index, or samples are absent.
    """
    if packed.is_partial:
        raise UsageError(
            f"{packed.path} is a node's copy for other jobs, which lacks samples",
            hint="give the folder that it was copied from",
        )
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


@contextmanager
def options_as_settings(settings: Mapping[str, str]) -> Iterator[None]:
    """In the messages of errors, replace options of ``vflops data pack`` by settings of a run."""
    try:
        yield
    except UsageError as error:
        message, hint = error.message, error.hint or ""
        for option, setting in settings.items():
            message, hint = message.replace(option, setting), hint.replace(option, setting)
        raise UsageError(message, hint=hint or None) from error
