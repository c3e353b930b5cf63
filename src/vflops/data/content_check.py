"""Compares samples with their digests when they are first read; later reads cost nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.content_hash import Digests, values_digest
from vflops.data.packed_index import REPAIR
from vflops.errors import FolderError


class ContentCheck:
    """The digests of a split, and which of its samples this process has compared with them.

    Safe to use from several threads: in the worst case, a sample is compared twice.
    """

    def __init__(self, split: str, digests: Digests) -> None:
        """``split`` names the split in error messages."""
        self._split = split
        self.digests = digests
        self.compared: NDArray[np.bool_] = np.zeros(len(digests), np.bool_)
        """Whether each sample has been compared."""

    def new(self, numbers: NDArray[np.int64]) -> list[int]:
        """Return the positions in ``numbers`` of samples that have not been compared."""
        return np.flatnonzero(~self.compared[numbers]).tolist()

    def compare(self, number: int, header: bytes, values: NDArray[Any]) -> None:
        """Raise ``FolderError`` if the ``values`` of a sample are not those that were packed."""
        digest = values_digest(header, values.reshape(-1).view(np.uint8).data)
        if digest != self.digests[number].tobytes():
            raise FolderError(
                f"sample {number} of {self._split} differs from what was packed: its shard was "
                "changed or is damaged",
                hint=REPAIR,
            )
        self.compared[number] = True
