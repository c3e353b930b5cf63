"""Which errors of a rank only say that another rank is gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RANK = """
import sys
from datetime import timedelta
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from vflops.train.parallel.group import is_lost_peer

store, rank, case = sys.argv[1], int(sys.argv[2]), sys.argv[3]
dist.init_process_group(
    "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(minutes=1)
)
model = DistributedDataParallel(torch.nn.Linear(4, 4))
dist.barrier()
if rank == 1:
    if case not in ("backward", "all-reduce"):
        sys.stdin.read()  # alive until the other rank has ended
    sys.exit()

def run():
    if case == "backward":
        model(torch.ones(2, 4)).sum().backward()
    elif case == "all-reduce":
        dist.all_reduce(torch.ones(4))
    elif case == "in-place":
        torch.ones(3, requires_grad=True).exp().add_(1).sum().backward()
    elif case == "root":
        dist.broadcast(torch.ones(2), group_src=7)
    elif case == "pipe":
        raise BrokenPipeError("the output is closed")

try:
    for _ in range(100):
        run()
except Exception as error:
    print(is_lost_peer(error), type(error).__name__, error)
sys.stdout.flush()
"""


@pytest.mark.parametrize(
    ("case", "lost", "words"),
    [
        ("backward", True, "Connection"),
        ("all-reduce", True, "Connection"),
        ("in-place", False, "modified by an inplace operation"),
        ("root", False, "invalid root rank"),
        ("pipe", False, "BrokenPipeError"),
    ],
)
def test_only_an_error_of_a_connection_to_a_rank_says_that_it_is_gone(
    tmp_path: Path, case: str, lost: bool, words: str
) -> None:
    command = [sys.executable, "-c", RANK, str(tmp_path / "store")]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), case], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    said = ranks[0].communicate(timeout=120)[0]
    ranks[1].communicate(timeout=120)
    assert said.startswith(f"{lost} "), said
    assert words in said
