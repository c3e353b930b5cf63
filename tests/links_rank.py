"""A rank that times plain all-reduces between the hosts of a bench: what their links are.

``python links_rank.py BYTES FILE``; rank 0 writes the median seconds of a message of so many bytes
and of one of 4 bytes.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

_ROUNDS = 7


def median_s(size_bytes: int) -> float:
    """Of an all-reduce; the first one, which opens connections, does not count."""
    numbers = torch.ones(size_bytes // 4)
    times = []
    for _ in range(_ROUNDS + 1):
        dist.barrier()
        begun_s = time.perf_counter()
        dist.all_reduce(numbers)
        numbers /= dist.get_world_size()
        times.append(time.perf_counter() - begun_s)
    return statistics.median(times[1:])


if __name__ == "__main__":
    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = os.environ["VFLOPS_STORE"]
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    found = {"large_s": median_s(int(sys.argv[1])), "small_s": median_s(4)}
    if rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()
