"""Measures the links of one node: imports torch once, then forks the ranks of each round.

python -m vflops.launch.node_check.link_ranks FOLDER NODE

All rounds have their time limits from when the nodes met, so that after a fault the nodes of the
next round are together again. Ranks are forked because after a fault NCCL exits, and gloo is
unusable.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from vflops.interruption import run_and_end
from vflops.launch.node_check.exchange import READY_S, Exchange, LinkSize, Result, plan_file
from vflops.launch.node_check.link_tasks import LinkPlan, LinkTask
from vflops.launch.waiting import LATE_S, wait_for
from vflops.machine.ceilings.allreduce import TOLERANCE
from vflops.machine.ceilings.allreduce_steps import Rank

_LEAVE_S = 2.0
"""By how much ranks may exceed their time before they are killed."""
_TIMEOUT_S = 0.5
"""How long before the time limit an error of a backend is taken for a timeout."""


class LinkRank(Rank):
    """A rank on one of several nodes; its time starts when all ranks are connected."""

    def __init__(self, task: LinkTask, rank: int, plan: LinkPlan, meeting: str, end_s: float):
        super().__init__(
            rank,
            task.ranks,
            plan.backend,
            Path(),
            end_s,
            plan.seed,
            meeting=meeting,
            local_rank=rank % task.ranks_per_node,
        )
        if task.size_bytes is not None:
            self._size_exponents = (task.size_bytes.bit_length() - 1,)
            if plan.backend == "nccl":
                self._connect_hosts()
        dist.barrier()
        self._end_s = min(end_s, time.monotonic() + plan.seconds)

    def _connect_hosts(self) -> None:
        """Raise an error unless gloo connects the ranks, as every job on accelerators needs."""
        number = torch.ones(())
        limit = timedelta(seconds=max(self._left_s(), 1.0))
        try:
            dist.all_reduce(number, group=dist.new_group(backend="gloo", timeout=limit))
        except Exception as error:  # gloo raises many kinds of errors
            raise RuntimeError(f"by gloo, which jobs need beside nccl: {error}") from error
        if int(number) != self._ranks:
            raise RuntimeError("by gloo, which jobs need beside nccl: the sum is wrong")


class PairRank(LinkRank):
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


def main(folder: str, node: str) -> int:
    """Take part in all rounds, also after a fault."""
    wait_for([plan_file(Path(folder))], READY_S)  # the first node writes it
    plan = LinkPlan.read(plan_file(Path(folder)))
    exchange = Exchange(Path(folder), int(node), plan.nodes)
    exchange.meet("ready", READY_S)
    end_s = time.monotonic()
    for number, tasks in enumerate(plan.rounds):
        if _left_out(exchange, plan, number, end_s + _LEAVE_S):
            continue
        end_s += plan.round_s
        for task in tasks:
            if exchange.node in task.nodes:
                _take_part(exchange, task, number, plan, end_s)
    return 0


def _left_out(exchange: Exchange, plan: LinkPlan, number: int, limit_s: float) -> bool:
    """Whether a round of all nodes would fail or hang, as one before it had a fault."""
    if number == 0 or all(len(task.nodes) <= 2 for task in plan.rounds[number]):
        return False
    if not exchange.meet(f"round-{number}", limit_s - time.monotonic()):
        return True
    before = [(k, task) for k, tasks in enumerate(plan.rounds[:number]) for task in tasks]
    wait_for([exchange.result_file(k, task.nodes[0]) for k, task in before], LATE_S)
    results = [exchange.result(k, task) for k, task in before]
    return any(result is None or result.fault for result in results)


def _take_part(
    exchange: Exchange, task: LinkTask, number: int, plan: LinkPlan, end_s: float
) -> None:
    """Run this node's ranks of a task, and write what they measured or their fault."""
    start = task.nodes.index(exchange.node) * task.ranks_per_node
    result = exchange.result_file(number, exchange.node)
    children = {}
    for rank in range(start, start + task.ranks_per_node):
        child = os.fork()
        if child == 0:
            run_and_end(_run, exchange, task, number, plan, rank, end_s)
        children[child] = rank
    end_s = max(end_s, time.monotonic() + 1.0) + _LEAVE_S
    fault = _wait(children, end_s)
    if fault and not result.is_file():
        Result(fault=fault, late=time.monotonic() > end_s).write(result)


def _run(
    exchange: Exchange, task: LinkTask, number: int, plan: LinkPlan, rank: int, end_s: float
) -> int:
    make = PairRank if task.benchmark == "point-to-point" else LinkRank
    result = exchange.result_file(number, exchange.node)
    try:
        first = exchange.present(task.nodes[0])
        meeting = f"tcp://{first.address}:{first.ports[number]}"
        measured = make(task, rank, plan, meeting, end_s).measure()
        sizes = tuple(map(LinkSize.model_validate, measured))
        if task.size_bytes is not None and sizes[0].error > TOLERANCE:
            raise RuntimeError("the sum is wrong")
        if rank == 0:
            Result(sizes=sizes).write(result)
    except BaseException as error:
        late = time.monotonic() > end_s - _TIMEOUT_S
        traceback.print_exc()
        lines = str(error).strip().splitlines() or [type(error).__name__]
        Result(fault=f"rank {rank}: {lines[0][:300]}", late=late).write(result)
        return 1
    return 0


def _wait(children: dict[int, int], end_s: float) -> str | None:
    """Wait for all ranks; kill those that exceed the limit, and return what was wrong."""
    fault = None
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            rank = children.pop(child)
            if code := os.waitstatus_to_exitcode(status):
                fault = fault or f"rank {rank} ended with exit code {code}"
        elif time.monotonic() > end_s:
            fault = "the ranks did not end in time"
            for other in children:
                os.kill(other, signal.SIGKILL)
            end_s = float("inf")
        else:
            time.sleep(0.02)
    return fault


if __name__ == "__main__":
    run_and_end(main, *sys.argv[1:3])
