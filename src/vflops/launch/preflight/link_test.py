"""Measures all-reduce between neighbouring nodes, then between all of them.

Started on every node as ``python -m vflops.launch.preflight.link_test``.

The nodes form a ring. Every pair of neighbours is a separate process group, so that a broken link
affects no other; pairs that share no node are timed at the same time.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from vflops.interruption import run_and_end
from vflops.launch.preflight.node_probe import READY_S, ROUND_S
from vflops.launch.preflight.preflight_findings import Hello, Link, Links, Roll
from vflops.launch.ring import ring_rounds
from vflops.launch.waiting import wait_for

_BYTES = {"gloo": 1 << 24, "nccl": 1 << 27}
_SAMPLES = 5
_LEAVE_S = 1.0
"""By how much a backend may exceed its own time limit."""
_FORK = multiprocessing.get_context(
    "fork"
)  # torch is imported once, and used only in child processes


class LinkTest:
    """One node's part in the measurements."""

    def __init__(self, folder: Path, node: int) -> None:
        self._folder, self._node = folder, node
        self._roll = Roll.read(folder / "roll.json")
        self._device = torch.device("cuda:0" if self._roll.backend == "nccl" else "cpu")
        self._links: list[Link] = []

    def measure(self) -> None:
        """Measure all links of this node; write each result at once, in case the next one hangs."""
        round_s = ROUND_S[self._roll.backend]
        self._wait_for_all("ready", READY_S)
        end_s = time.monotonic()
        for pairs in ring_rounds(self._roll.nodes):
            end_s += round_s
            for pair in pairs:
                if self._node in pair:
                    self._add(self._in_child(pair, end_s))
        if not self._wait_for_all("paired", end_s - time.monotonic()) and len(self._roll.nodes) > 2:
            links = [self._read(other) for other in self._roll.nodes]
            if all(link.fault is None for node in links for link in node.links):
                self._add(self._in_child(self._roll.nodes, end_s + round_s))

    def _in_child(self, nodes: tuple[int, ...], end_s: float) -> Link:
        """Measure one group in a child process: after a fault NCCL exits, and gloo is unusable."""
        receiving, sending = _FORK.Pipe(duplex=False)
        process = _FORK.Process(
            target=run_and_end, args=(self._report, sending, nodes, end_s), daemon=True
        )
        process.start()
        sending.close()
        try:
            if not receiving.poll(max(end_s - time.monotonic(), 1.0) + _LEAVE_S):
                return Link(nodes=nodes, bandwidth=None, fault="timeout: it did not end")
            bandwidth, fault = receiving.recv()
        except EOFError:
            process.join()
            fault = f"its process ended with exit code {process.exitcode}"
            return Link(nodes=nodes, bandwidth=None, fault=fault)
        finally:
            process.kill()
            process.join()
        return Link(nodes=nodes, bandwidth=bandwidth, fault=fault)

    def _report(self, sending: Connection, nodes: tuple[int, ...], end_s: float) -> int:
        try:
            sending.send((self._bandwidth(nodes, end_s), None))
        except Exception as error:  # backends raise many kinds of errors
            lines = str(error).strip().splitlines() or [type(error).__name__]
            sending.send((None, lines[0][:300]))
        return 0

    def _bandwidth(self, nodes: tuple[int, ...], end_s: float) -> float:
        limit = timedelta(seconds=max(end_s - time.monotonic(), 1.0))
        rank, first = nodes.index(self._node), self._hello(nodes[0])
        store = TCPStore(
            first.address,
            first.store_ports[0 if len(nodes) == 2 else 1],
            is_master=rank == 0,
            wait_for_workers=False,
            timeout=limit,
        )
        dist.init_process_group(
            self._roll.backend,
            store=store,
            rank=rank,
            world_size=len(nodes),
            timeout=limit,
            device_id=None if self._device.type == "cpu" else self._device,
        )
        self._check_hosts(len(nodes), limit)
        numbers = torch.ones(_BYTES[self._roll.backend] // 4, device=self._device)
        dist.all_reduce(numbers)
        if not bool((numbers == len(nodes)).all()):
            raise RuntimeError("the sum is wrong")
        times_s = [self._time_s(numbers.fill_(1.0)) for _ in range(_SAMPLES)]
        store.set(f"done-{rank}", "")
        if rank == 0:  # the store ends with this process
            store.wait([f"done-{other}" for other in range(len(nodes))], limit)
        return 2 * (len(nodes) - 1) / len(nodes) * numbers.nbytes / statistics.median(times_s)

    def _check_hosts(self, nodes: int, limit: timedelta) -> None:
        """Raise an error unless the hosts reach each other, as every job on accelerators needs."""
        if self._roll.backend == "gloo":
            return  # that is what is measured
        number = torch.ones(())
        try:
            dist.all_reduce(number, group=dist.new_group(backend="gloo", timeout=limit))
        except Exception as error:  # gloo raises many kinds of errors
            raise RuntimeError(f"between the hosts, by gloo: {error}") from error
        if int(number) != nodes:
            raise RuntimeError("the sum of the hosts, by gloo, is wrong")

    def _time_s(self, numbers: torch.Tensor) -> float:
        dist.barrier()
        self._synchronize()
        start_s = time.perf_counter()
        dist.all_reduce(numbers)
        self._synchronize()
        return time.perf_counter() - start_s

    def _add(self, link: Link) -> None:
        self._links.append(link)
        Links(links=tuple(self._links)).write(self._folder / f"links-{self._node}.json")

    def _wait_for_all(self, word: str, limit_s: float) -> list[Path]:
        """Create the file ``word``-<node>, wait for those of all nodes, and return the missing."""
        (self._folder / f"{word}-{self._node}").touch()
        return wait_for([self._folder / f"{word}-{other}" for other in self._roll.nodes], limit_s)

    def _hello(self, node: int) -> Hello:
        return Hello.read(self._folder / f"hello-{node}.json")

    def _read(self, node: int) -> Links:
        return Links.read(self._folder / f"links-{node}.json")

    def _synchronize(self) -> None:
        if self._device.type != "cpu":
            torch.accelerator.synchronize()


def main(folder: str, node: str) -> int:
    """Measure the links of a node; return the exit code."""
    LinkTest(Path(folder), int(node)).measure()
    return 0


if __name__ == "__main__":
    run_and_end(main, *sys.argv[1:3])
