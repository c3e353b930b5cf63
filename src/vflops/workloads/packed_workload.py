"""The part of a workload that reads packed data by splits."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from vflops.data.packed_folder import PackedFolder, PackedSplit
from vflops.record.formats.job import DataFacts
from vflops.workloads.contract.workload import Samples, Split, Workload
from vflops.workloads.packed_data import JobSplits, verify_unchanged

SplitsType = TypeVar("SplitsType", bound=JobSplits[Any])
SamplesType = TypeVar("SamplesType", bound=Samples)


class PackedWorkload(Workload, Generic[SplitsType, SamplesType]):
    """A workload on packed data; splits are opened when they are first read."""

    packed: ClassVar[type[PackedFolder[Any]]]
    """The kind of packed data."""

    def __init__(self, splits: SplitsType) -> None:
        self._splits = splits
        self._samples: dict[Split, SamplesType] = {}

    @classmethod
    def verify_data(cls, data: DataFacts) -> None:
        """Raise ``UsageError`` if the data has changed."""
        verify_unchanged(cls.packed, data)

    @abstractmethod
    def open_samples(self, split: Split) -> SamplesType:
        """Open the samples of a split."""

    def samples(self, split: Split) -> SamplesType:
        """Return a split of the packed data."""
        if split not in self._samples:
            self._samples[split] = self.open_samples(split)
        return self._samples[split]

    def read_splits(self) -> dict[str, PackedSplit]:
        """Return the splits whose samples are compared with their digests."""
        return self._splits.read_splits()
