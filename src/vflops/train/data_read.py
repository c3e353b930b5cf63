"""Records what the ranks of an attempt read of their data, and that it was unchanged."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vflops.data.content_hash import count_leaks
from vflops.data.packed_folder import PackedSplit
from vflops.record.formats.job_events import DataRead, SplitRead
from vflops.train.context import JobContext
from vflops.train.parallel.rank_group import RankGroup


def write_data_read(
    context: JobContext, group: RankGroup, splits: Mapping[str, PackedSplit]
) -> None:
    """Write the event ``data-read``; all ranks call this with the same splits."""
    if not splits:
        return
    compared = _compared(group, splits)
    if not group.leads:
        return
    digests = {name: split.check.digests for name, split in splits.items() if split.check}
    train = digests.pop("train", None)
    read = {
        name: SplitRead(
            samples=len(split), compared=int(compared[name].sum()), sha256=split.content_hash()
        )
        for name, split in splits.items()
    }
    leaked = 0 if train is None else count_leaks(train, list(digests.values()))
    context.write_event("data-read", DataRead(splits=read, leaked=leaked))


def _compared(group: RankGroup, splits: Mapping[str, PackedSplit]) -> dict[str, NDArray[np.bool_]]:
    """Return which samples any rank has compared, by split."""
    own = {name: np.packbits(split.check.compared) for name, split in splits.items() if split.check}
    gathered = group.gather(own)
    return {
        name: np.unpackbits(
            np.bitwise_or.reduce([np.asarray(rank[name]) for rank in gathered]), count=len(split)
        ).astype(np.bool_)
        for name, split in splits.items()
    }
