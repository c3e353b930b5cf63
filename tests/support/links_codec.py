"""A rank that times what it takes to compress gradients, by itself: nothing is sent.

``python links_codec.py GRAPH RANKS FOLDER``; writes ``rank-R.json`` into the folder: the median
seconds to code, add up and decode the gradients of the graph's model, as each of RANKS ranks would,
by precision; the sizes of the buckets that torch's DDP would fill with them; and the share of them
that PowerSGD sends.
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

from vflops.metrics.traffic import powersgd_elements
from vflops.record.formats.graph import Graph
from vflops.train.communication.average import Flat
from vflops.train.communication.bucket import MadeBucket
from vflops.train.communication.codec import Leftovers, codec
from vflops.train.communication.link import Link, Traffic
from vflops.train.communication.powersgd import RANK, START, PowerSgd

CODED = ("bf16", "fp16", "int8", "powersgd")
_ROUNDS = 9
_CAP_BYTES = 25 << 20
"""Of a bucket but the first, as DDP has it by default."""


class Still(Link):
    """A link over which nothing goes: a rank gets what it has itself."""

    def all_reduce(self, data: Tensor) -> None:
        """Nothing is added."""

    def all_to_all(self, pieces: Tensor) -> Tensor:
        """Its own pieces."""
        return pieces

    def all_gather(self, piece: Tensor) -> Tensor:
        """Its own piece, as often as there are ranks."""
        return piece.expand(self.ranks, *piece.shape).contiguous()


class Alone(Flat):
    """One of several ranks that average, without the others."""

    def _join(self, ranks: list[int]) -> None:
        self._all = Still(dist.group.WORLD, 0, len(ranks), 1, self.traffic)  # type: ignore[arg-type]


def shapes(graph: Graph) -> list[tuple[int, ...]]:
    """Of the parameters, in their order."""
    found = {
        value.parameter: value.shape
        for value in graph.values
        if value.parameter and value.elements == graph.parameters[value.parameter]
    }
    return [found[name] for name in graph.parameters]


def buckets(graph: Graph) -> list[MadeBucket]:
    """The model's gradients, any numbers, in the buckets of DDP: the last layers first."""
    tensors = [torch.empty(shape) for shape in reversed(shapes(graph))]
    limits = [_DEFAULT_FIRST_BUCKET_BYTES, _CAP_BYTES]
    parts, _ = _compute_bucket_assignment_by_size(tensors, limits)
    return [
        _bucket(number, [tensors[index].shape for index in part], number == len(parts) - 1)
        for number, part in enumerate(parts)
    ]


def _bucket(number: int, own: Sequence[torch.Size], last: bool) -> MadeBucket:
    numbers = torch.randn(sum(shape.numel() for shape in own))
    pieces = numbers.split([shape.numel() for shape in own])
    views = [piece.view(shape) for piece, shape in zip(pieces, own, strict=True)]
    return MadeBucket(number, numbers, views, last)


def coded_s(precision: str, own: Sequence[MadeBucket], ranks: int) -> float:
    """Median seconds of all buckets; the same numbers each time, and what was left out added."""
    if precision == "powersgd":
        mean: Callable[[MadeBucket], object] = PowerSgd(Link.of(None, 1, Traffic()))
        unlike = START + 1  # sent in full, and begun without an earlier product
    else:
        average, unlike = Alone(range(ranks), "gloo", 1, codec(precision)), 1
        left: dict[int, Leftovers] = {bucket.index(): {} for bucket in own}
        mean = lambda bucket: average(bucket.buffer(), left[bucket.index()])  # noqa: E731
    kept = [bucket.buffer().clone() for bucket in own]
    times = []
    for _ in range(unlike + _ROUNDS):
        for bucket, numbers in zip(own, kept, strict=True):
            bucket.buffer().copy_(numbers)
        begun_s = time.perf_counter()
        for bucket in own:
            mean(bucket)
        times.append(time.perf_counter() - begun_s)
    return statistics.median(times[unlike:])


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    model = Graph.read(Path(sys.argv[1]))
    made = buckets(model)
    found = {
        "bucket_bytes": [bucket.buffer().nbytes for bucket in made],
        "coding_s": {each: coded_s(each, made, int(sys.argv[2])) for each in CODED},
        "powersgd_share": powersgd_elements(shapes(model), RANK) / model.parameter_count,
    }
    Path(sys.argv[3], f"rank-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(found))
    dist.destroy_process_group()
