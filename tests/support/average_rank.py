"""A rank that averages in every mode and precision: ``python average_rank.py FOLDER PART``.

Rank 0 writes the results to ``FOLDER/found.json``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.support.shared_device import rank_device
from vflops.config.parallel import CommunicationSettings
from vflops.interruption import run_and_end
from vflops.train.communication import average, connect, exchange_gradients
from vflops.train.communication.codec import Residuals

NUMBERS = 1003
"""Not a multiple of the ranks."""
EXCHANGES = 30

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = rank_device(rank)


def gradients(of: int) -> Tensor:
    """Return some large numbers and many small ones."""
    numbers = torch.randn(NUMBERS, generator=torch.Generator().manual_seed(of)) ** 3
    return numbers.to(DEVICE)


def largest(value: float) -> float:
    """Return the maximum over the ranks."""
    maximum = torch.tensor(value, dtype=torch.float64, device=DEVICE)
    dist.all_reduce(maximum, dist.ReduceOp.MAX)
    return float(maximum)


def one_way(mode: str, precision: str) -> dict[str, Any]:
    """Return the errors of one mean and of the mean of many; what all ranks sent for one."""
    way = average(mode, precision, local_ranks=ranks)
    left: Residuals = {}
    exact = torch.stack([gradients(item) for item in range(ranks)]).double().mean(0)
    total = torch.zeros_like(exact)
    first: Tensor | None = None
    sent = torch.zeros(2, dtype=torch.int64)
    for _ in range(EXCHANGES if precision == "int8" else 1):
        mine = gradients(rank)
        way(mine, left)
        if first is None:
            first = mine
            sent = torch.tensor([way.traffic.near_bytes, way.traffic.far_bytes], device=DEVICE)
            dist.all_reduce(sent)
        total += mine
    assert first is not None
    lead = first.clone()
    dist.broadcast(lead, 0)
    return {
        "error": largest(float((first - exact).abs().max())),
        "later": float((total / EXCHANGES - exact).abs().max()),
        "differs": largest(float((first - lead).abs().max())),
        "sent": sent.tolist(),
        "near": way.near_ranks,
    }


def ways() -> dict[str, Any]:
    """Return the results of every mode and precision."""
    return {
        f"{mode} {precision}": one_way(mode, precision)
        for mode in ("all-reduce", "hierarchical", "torus")
        for precision in ("fp32", "fp16", "bf16", "int8")
    }


def overflow() -> list[bool]:
    """Return whether a mean is finite if a number of one rank is not, and the next time."""
    way, finite = average("torus", "int8", local_ranks=ranks), []
    left: Residuals = {}
    for wrong in (True, False):
        mine = gradients(rank)
        if wrong and rank == 1:
            mine[::2] = torch.inf
        way(mine, left)
        finite.append(bool(mine.isfinite().all()))
    return finite


def halves() -> float:
    """Return the error of separate means over ranks 0, 2 … and 1, 3 …"""
    groups = [dist.new_group(list(range(first, ranks, 2))) for first in (0, 1)]
    way = average("all-reduce", "fp32", groups[rank % 2], local_ranks=ranks // 2)
    mine = torch.full((5,), float(rank))
    way(mine, {})
    return largest(float((mine - (rank % 2 + ranks / 2 - 1)).abs().max()))


def by_node() -> list[int]:
    """Return the bytes of a ring over near and far links, with two ranks per node."""
    way = average("all-reduce", "fp32", local_ranks=2)
    way(torch.ones(ranks), {})
    sent = torch.tensor([way.traffic.near_bytes, way.traffic.far_bytes])
    dist.all_reduce(sent)
    return [int(item) for item in sent]


def backward(ddp: nn.Module, scale: float = 1.0, *, overflow: bool = False) -> None:
    generator = torch.Generator().manual_seed(100 + rank)
    loss = ddp(torch.randn(4, 64, generator=generator)).square().mean()
    (loss * (torch.inf if overflow and rank == 1 else scale)).backward()


def flat_gradients(ddp: nn.Module) -> Tensor:
    return torch.cat([item.grad.flatten() for item in ddp.parameters() if item.grad is not None])


def wrapped(settings: CommunicationSettings) -> tuple[nn.Module, Any]:
    """Return a model of several buckets, and its exchange."""
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.02, gradient_as_bucket_view=True)
    return ddp, exchange_gradients(ddp, settings, None, ranks)


def buckets() -> dict[str, Any]:
    """Return the relative difference of each exchange's gradients from those of DDP."""
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
    reference = DistributedDataParallel(model)
    backward(reference)
    wanted = flat_gradients(reference)
    plain, exchange = wrapped(CommunicationSettings())
    backward(plain)
    error = float((flat_gradients(plain) - wanted).norm() / wanted.norm())
    report = exchange.report(None, torch.device("cpu"))
    results: dict[str, Any] = {"plain": {"error": largest(error), **report.model_dump()}}
    for settings in (
        CommunicationSettings(mode="torus"),
        CommunicationSettings(mode="hierarchical", precision="int8"),
        CommunicationSettings(precision="powersgd"),
    ):
        ddp, exchange = wrapped(settings)
        for step in range(12):  # the last ones by PowerSGD
            ddp.zero_grad()
            backward(ddp, overflow=step == 9)
        error = float((flat_gradients(ddp) - wanted).norm() / wanted.norm())
        report = exchange.report(None, torch.device("cpu"))
        exchange.close()
        results[settings.precision] = {"error": largest(error), **report.model_dump()}
    return results


def restarted(precision: str) -> dict[str, Any]:
    """Return what a second module gives through the exchange of a first one, and through its own.

    Two candidates of a search train one after the other.
    """
    settings = CommunicationSettings.model_validate({"precision": precision})
    found = []
    for reused in (False, True):
        ddp, exchange = wrapped(settings)
        groups = dist.get_pg_count()
        if reused:
            for _ in range(3):
                backward(ddp)
            exchange.restart()
            torch.manual_seed(1)
            ddp = DistributedDataParallel(
                nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))),
                bucket_cap_mb=0.02,
                gradient_as_bucket_view=True,
            )
            connect(ddp, exchange)
        for _ in range(12):
            ddp.zero_grad()
            backward(ddp)
        report = exchange.report(None, torch.device("cpu")).model_dump()
        found.append((flat_gradients(ddp), report, dist.get_pg_count() - groups))
        exchange.close()
    (fresh, fresh_report, _), (again, again_report, more) = found
    return {
        "error": largest(float((fresh - again).abs().max())),
        "same": fresh_report == again_report,
        "more_groups": more,
    }


def scaled(precision: str) -> float:
    """Return how far unscaled gradients differ between a constant and a changing loss scale."""
    results: list[Tensor] = []
    for scales in ([1.0] * 12, [2.0 ** (9 * (step % 3)) for step in range(12)]):
        ddp, exchange = wrapped(CommunicationSettings.model_validate({"precision": precision}))
        for scale in scales:
            ddp.zero_grad()
            exchange.begin(lambda one, by=scale: one * by)
            backward(ddp, scale)
        exchange.close()
        results.append(flat_gradients(ddp) / scales[-1])
    return largest(float((results[1] - results[0]).norm() / results[0].norm()))


def die() -> None:
    """End rank 1 while rank 0 waits for it."""
    ddp, exchange = wrapped(CommunicationSettings(precision="int8"))
    backward(ddp)
    if rank == 1:
        os._exit(0)
    start_s = time.monotonic()
    try:
        backward(ddp)
        words = "no error"
    except RuntimeError as error:
        words = str(error)
    exchange.close()
    threads = [thread.name for thread in threading.enumerate()]
    write_results({"words": words, "took_s": time.monotonic() - start_s, "threads": threads})
    os._exit(0)


def write_results(results: dict[str, Any]) -> None:
    if rank == 0:
        Path(sys.argv[1], "found.json").write_text(json.dumps(results))


def main() -> int:
    """Average in every way, or die, and write the results."""
    torch.set_num_threads(1)
    store = f"file://{sys.argv[1]}/store"
    on_gpu = DEVICE.type != "cpu"
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=store,
        rank=rank,
        world_size=ranks,
        device_id=DEVICE if on_gpu else None,
    )
    if sys.argv[2] == "die":
        die()
    if on_gpu:
        write_results({"ways": ways()})
        dist.barrier()
        return 0
    parts = {
        "ways": ways(),
        "overflow": overflow(),
        "halves": halves(),
        "by_node": by_node(),
        "buckets": buckets(),
        "restarted": {precision: restarted(precision) for precision in ("int8", "powersgd")},
        "scaled": {precision: scaled(precision) for precision in ("int8", "powersgd")},
    }
    write_results(parts)
    dist.barrier()
    return 0


if __name__ == "__main__":
    run_and_end(main)
