r"""Measures the links of one node: imports torch once, then forks the ranks of each round.

python -m vflops.launch.node_ceilings.link_ranks RUN TOKEN NODE NODES RANKS SLOTS SECONDS SEED
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

from vflops.interruption import run_and_end
from vflops.launch.node_ceilings.exchange import Exchange, LinkSize, Result
from vflops.launch.node_ceilings.link_tasks import LinkTask, link_rounds
from vflops.launch.node_layout import NodeLayout
from vflops.machine.ceilings.allreduce_steps import Rank

CONNECT_S = 20.0
"""How long the ranks of a round may take to connect."""
_LEAVE_S = 2.0
"""By how much ranks may exceed their time before they are killed."""


class AllReduceRank(Rank):
    """A rank on one of several nodes; its time starts when all ranks are connected."""

    def __init__(
        self, task: LinkTask, rank: int, backend: str, meeting: str, seconds: float, seed: int
    ) -> None:
        super().__init__(
            rank,
            task.ranks,
            backend,
            Path(),
            time.monotonic() + CONNECT_S,
            seed,
            meeting=meeting,
            local_rank=rank % task.ranks_per_node,
        )
        dist.barrier()
        self._end_s = time.monotonic() + seconds


class PairRank(AllReduceRank):
    """One of two ranks that send a message there and back."""

    @property
    def _result_factor(self) -> float:
        return 1.0

    def _reduce(self, data: torch.Tensor) -> None:
        if self._rank == 0:
            dist.send(data, 1)
            dist.recv(data, 1)
        else:
            dist.recv(data, 0)
            dist.send(data, 0)


def main(arguments: list[str]) -> int:
    """Take part in all rounds; after a fault of this node's ranks, leave the rest out."""
    run, token, node, nodes, ranks, slots, seconds, seed = arguments
    exchange = Exchange(Path(run), token, int(node), int(nodes))
    rounds = link_rounds(int(nodes), NodeLayout(int(ranks), int(slots)))
    backend = link_backend(exchange)
    for number, tasks in enumerate(rounds):
        for task in tasks:
            if exchange.node in task.nodes and not _take_part(
                exchange, task, number, backend, float(seconds) / len(rounds), int(seed)
            ):
                return 1
    return 0


def link_backend(exchange: Exchange) -> str:
    """Return ``nccl`` if all nodes have NVIDIA or AMD accelerators, else ``gloo``."""
    kinds = {exchange.present(node).accelerator for node in range(exchange.nodes)}
    return "nccl" if kinds == {"cuda"} and dist.is_nccl_available() else "gloo"


def _take_part(
    exchange: Exchange, task: LinkTask, number: int, backend: str, seconds: float, seed: int
) -> bool:
    """Run this node's ranks of a task; return whether they succeeded."""
    first = exchange.present(task.nodes[0])
    meeting = f"tcp://{first.address}:{first.ports[number]}"
    start = task.nodes.index(exchange.node) * task.ranks_per_node
    result = exchange.result_file(number, task.nodes[0])
    children = {}
    for rank in range(start, start + task.ranks_per_node):
        child = os.fork()
        if child == 0:
            run_and_end(_run, task, rank, backend, meeting, seconds, seed, result)
        children[child] = rank
    fault = _wait(children, CONNECT_S + seconds + _LEAVE_S)
    if fault and not result.is_file():
        Result(fault=fault).write(result)
    return fault is None


def _run(
    task: LinkTask,
    rank: int,
    backend: str,
    meeting: str,
    seconds: float,
    seed: int,
    result: Path,
) -> int:
    make = PairRank if task.benchmark == "point-to-point" else AllReduceRank
    try:
        sizes = make(task, rank, backend, meeting, seconds, seed).measure()
        if rank == 0:
            Result(sizes=tuple(map(LinkSize.model_validate, sizes))).write(result)
    except BaseException as error:
        traceback.print_exc()
        lines = str(error).strip().splitlines() or [type(error).__name__]
        Result(fault=f"rank {rank}: {lines[0][:300]}").write(result)
        return 1
    return 0


def _wait(children: dict[int, int], limit_s: float) -> str | None:
    """Wait for all ranks; kill those that exceed the limit, and return what was wrong."""
    end_s, fault = time.monotonic() + limit_s, None
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            rank = children.pop(child)
            if code := os.waitstatus_to_exitcode(status):
                fault = fault or f"rank {rank} ended with exit code {code}"
        elif time.monotonic() > end_s:
            fault = f"the ranks did not end within {limit_s:.0f} s"
            for other in children:
                os.kill(other, signal.SIGKILL)
            end_s = float("inf")
        else:
            time.sleep(0.02)
    return fault


if __name__ == "__main__":
    run_and_end(main, sys.argv[1:])
