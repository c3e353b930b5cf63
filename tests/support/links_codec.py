"""A rank that times the compression of gradients without sending anything.

``python links_codec.py GRAPH RANKS FOLDER`` writes ``rank-R.json`` to the folder: the median
seconds to encode, add and decode the gradients of the graph's model, as each of RANKS ranks would,
by precision; the sizes of the buckets of torch's DDP; and the share of the gradients that PowerSGD
sends.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import (
    _DEFAULT_FIRST_BUCKET_BYTES,
    HashStore,
    _compute_bucket_assignment_by_size,
)

from vflops.metrics.traffic import POWERSGD_RANK, POWERSGD_START, powersgd_elements
from vflops.record.formats.graph import Graph
from vflops.train.communication.average import FlatAverage
from vflops.train.communication.bucket import FlatBucket
from vflops.train.communication.codec import Residuals, codec
from vflops.train.communication.link import Link, Traffic
from vflops.train.communication.powersgd import PowerSgd

CODED = ("bf16", "fp16", "int8", "powersgd")
_ROUNDS = 9
_CAP_BYTES = 25 << 20
"""The size of every bucket but the first, as DDP has it by default."""


class LoopbackLink(Link):
    """A link that sends nothing: a rank receives its own data."""

    def all_reduce(self, data: Tensor) -> None:
        """Leave the data as it is."""

    def all_to_all(self, pieces: Tensor) -> Tensor:
        """Return the rank's own pieces."""
        return pieces

    def all_gather(self, piece: Tensor) -> Tensor:
        """Return the rank's own piece, once per rank."""
        return piece.expand(self.ranks, *piece.shape).contiguous()


class AverageAlone(FlatAverage):
    """One of several ranks that average, without the others."""

    def _join(self, ranks: list[int]) -> None:
        self._all = LoopbackLink(dist.group.WORLD, 0, len(ranks), 1, self.traffic)  # type: ignore[arg-type]


def shapes(graph: Graph) -> list[tuple[int, ...]]:
    """Return the shapes of the parameters, in order."""
    by_name = {
        value.parameter: value.shape
        for value in graph.values
        if value.parameter and value.elements == graph.parameters[value.parameter]
    }
    return [by_name[name] for name in graph.parameters]


def buckets(graph: Graph) -> list[FlatBucket]:
    """Return random gradients of the model in the buckets of DDP, the last layers first."""
    tensors = [torch.empty(shape) for shape in reversed(shapes(graph))]
    limits = [_DEFAULT_FIRST_BUCKET_BYTES, _CAP_BYTES]
    parts, _ = _compute_bucket_assignment_by_size(tensors, limits)
    return [
        _bucket(number, [tensors[index].shape for index in part], number == len(parts) - 1)
        for number, part in enumerate(parts)
    ]


def _bucket(number: int, sizes: Sequence[torch.Size], last: bool) -> FlatBucket:
    numbers = torch.randn(sum(shape.numel() for shape in sizes))
    pieces = numbers.split([shape.numel() for shape in sizes])
    views = [piece.view(shape) for piece, shape in zip(pieces, sizes, strict=True)]
    return FlatBucket(number, numbers, views, last)


def coded_s(precision: str, filled: Sequence[FlatBucket], ranks: int) -> float:
    """Return the median seconds for all buckets, with error feedback; the numbers stay the same."""
    if precision == "powersgd":
        mean: Callable[[FlatBucket], object] = PowerSgd(Link.wrap(None, 1, Traffic()))
        warm_up = POWERSGD_START + 1  # sent in full, and started without an earlier product
    else:
        average, warm_up = AverageAlone(range(ranks), "gloo", 1, codec(precision)), 1
        left: dict[int, Residuals] = {bucket.index(): {} for bucket in filled}
        mean = lambda bucket: average(bucket.buffer(), left[bucket.index()])  # noqa: E731
    originals = [bucket.buffer().clone() for bucket in filled]
    times = []
    for _ in range(warm_up + _ROUNDS):
        for bucket, numbers in zip(filled, originals, strict=True):
            bucket.buffer().copy_(numbers)
        start_s = time.perf_counter()
        for bucket in filled:
            mean(bucket)
        times.append(time.perf_counter() - start_s)
    return statistics.median(times[warm_up:])


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    model = Graph.read(Path(sys.argv[1]))
    filled_buckets = buckets(model)
    figures = {
        "bucket_bytes": [bucket.buffer().nbytes for bucket in filled_buckets],
        "coding_s": {
            precision: coded_s(precision, filled_buckets, int(sys.argv[2])) for precision in CODED
        },
        "powersgd_share": powersgd_elements(shapes(model), POWERSGD_RANK) / model.parameter_count,
    }
    Path(sys.argv[3], f"rank-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(figures))
    dist.destroy_process_group()
