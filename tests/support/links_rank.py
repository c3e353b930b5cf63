"""A rank that times plain exchanges between hosts, to measure their links.

``python links_rank.py BYTES FILE [PRECISION…]``: rank 0 writes the median seconds to exchange as
many numbers as take BYTES bytes in fp32, and the fewest possible, in each precision (by default
fp32). The numbers are not encoded.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from vflops.interruption import run_and_end

_ROUNDS = 5
_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int8": torch.int8}


def exchange(precision: str, numbers: int) -> Callable[[], object]:
    """Return an all-reduce of ``numbers``; for int8, which cannot be added, its two halves."""
    ranks = dist.get_world_size()
    data = torch.ones(-(-numbers // ranks) * ranks, dtype=_TYPES[precision])
    if precision == "fp32":  # the mean, as DDP takes it
        return lambda: (data.div_(ranks), dist.all_reduce(data))
    if precision != "int8":
        return lambda: dist.all_reduce(data)
    pieces, piece = torch.empty_like(data), torch.empty(len(data) // ranks, dtype=torch.int8)
    # The second name is that of torch before 2.13, which deprecates it.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return lambda: (dist.all_to_all_single(pieces, data), gather(pieces, piece))


def median_s(call: Callable[[], object]) -> float:
    """Return the median time of a call, without the first one, which opens connections."""
    times = []
    for _ in range(_ROUNDS + 1):
        dist.barrier()
        start_s = time.perf_counter()
        call()
        times.append(time.perf_counter() - start_s)
    return statistics.median(times[1:])


def main() -> int:
    """Connect, measure, and write the figures."""
    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = os.environ["VFLOPS_STORE"]
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    figures = {
        precision: {
            "large_s": median_s(exchange(precision, int(sys.argv[1]) // 4)),
            "small_s": median_s(exchange(precision, 1)),
        }
        for precision in sys.argv[3:] or ["fp32"]
    }
    if rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(figures))
    dist.barrier()
    return 0


if __name__ == "__main__":
    run_and_end(main)
