"""What a preflight checks on one node: the node itself, and together with the others.

Nodes and the gatherer, which collects their results, exchange files in the shared folder. A node
that cannot do that prints a report, which the gatherer reads from the output of the node's step.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import tempfile
import time
import traceback
from importlib import metadata
from pathlib import Path

import vflops
from vflops.errors import RunFailed, VflopsError
from vflops.launch import node_clock
from vflops.launch.agent_report import AgentReport
from vflops.launch.clock_server import LOOPBACK, ClockServer, interface_towards
from vflops.launch.job_script import LOCAL_PATH
from vflops.launch.node_check.exchange import Exchange, Health, Present, Space, links_s, plan_file
from vflops.launch.node_check.findings import NodeResult, Order
from vflops.launch.node_check.gpu_health import gpus
from vflops.launch.node_check.link_tasks import Backend, LinkPlan, check_rounds
from vflops.launch.waiting import node_name, reserved_ports, wait_for
from vflops.record.files.atomic import cannot_write

_BLOCK_BYTES = 1 << 22
_SIZE_BYTES: dict[Backend, int] = {"gloo": 1 << 24, "nccl": 1 << 27}
_CONNECT_S: dict[Backend, float] = {"gloo": 5.0, "nccl": 14.0}
"""How long two nodes may take to connect."""
_MEASURE_S: dict[Backend, float] = {"gloo": 3.0, "nccl": 6.0}
_MAX_ROUNDS = 4
"""Three rounds of pairs, and one of all nodes."""
_SEE_S = 30.0
"""How long a file may take to become visible on all nodes."""
_CLOCK_S = 10.0
_MAX_IO_S = 5.0
"""The time limit for writing the file whose reading is timed, and for reading it."""


def main(folder: str, node: str) -> int:
    """Answer, wait for the other nodes and measure with them; return 0 on success."""
    name = node_name()
    try:
        _probe(Path(folder), int(node), name)
    except Exception as error:
        if not isinstance(error, VflopsError):
            traceback.print_exc()
        message = str(error) or type(error).__name__
        fault = AgentReport(node=name, job=int(node), outcome="failed", message=message)
        print(fault.model_dump_json(), flush=True)
        return 3
    return 0


def check_plan(nodes: tuple[int, ...], backend: Backend) -> LinkPlan:
    """Return which links the nodes check."""
    return LinkPlan(
        nodes=nodes,
        backend=backend,
        rounds=check_rounds(nodes, _SIZE_BYTES[backend]),
        connect_s=_CONNECT_S[backend],
        seconds=_MEASURE_S[backend],
    )


def measure_s(plan: LinkPlan) -> float:
    """Return how long a node may take for all measurements, once the plan is written."""
    return _SEE_S + _CLOCK_S + 2 * _MAX_IO_S + links_s(plan)


def _probe(folder: Path, node: int, name: str) -> None:
    if wait_for([folder / "order.json"], 10.0):
        raise RunFailed(f"{folder} is not the folder of the machine that started the preflight")
    order = Order.read(folder / "order.json")
    server = ClockServer(LOOPBACK if order.local else interface_towards(()))
    try:
        _write(folder / f"read-{node}.bin", order.read_bytes)
    except OSError as error:
        raise cannot_write(folder, error) from error
    health = _health(folder, server)
    with reserved_ports(_MAX_ROUNDS) as ports:
        _take_part(folder, node, name, order, health, ports)


def _take_part(
    folder: Path, node: int, name: str, order: Order, health: Health, ports: tuple[int, ...]
) -> None:
    """Introduce the node, and measure what the plan asks of it."""
    present = Present(
        token=order.token,
        name=name,
        address=socket.gethostname(),
        ports=ports,
        accelerator="cuda" if health.gpus else None,
        health=health,
    )
    Exchange(folder, node, ()).introduce(present)
    if wait_for([plan_file(folder)], 2 * order.limit_s):
        raise RunFailed(
            f"{folder} does not show new files of the machine that started the preflight"
        )
    plan = LinkPlan.read(plan_file(folder))
    if node not in plan.nodes:
        raise RunFailed(f"the node answered too late, after {order.limit_s:g} s")
    exchange = Exchange(folder, node, plan.nodes)
    _measure(exchange, order, plan).write(folder / f"found-{node}.json")
    # The others need this node's clock server until they have finished.
    wait_for([folder / f"found-{other}.json" for other in plan.nodes], measure_s(plan))


def _measure(exchange: Exchange, order: Order, plan: LinkPlan) -> NodeResult:
    nodes, folder = plan.nodes, exchange.path
    unseen = set(exchange.absent(_SEE_S))
    seen = {node: exchange.present(node) for node in nodes if node not in unseen}
    unseen |= {node for node, present in seen.items() if present.token != order.token}
    clock = None
    if exchange.node != nodes[0] and (first := seen.get(nodes[0])) and (health := first.health):
        address = health.clock_address or first.address
        clock = node_clock.offset(address, health.clock_port, _CLOCK_S, token=health.clock_token)
    following = nodes[(nodes.index(exchange.node) + 1) % len(nodes)]
    bandwidth, fault = _read(folder / f"read-{following}.bin")
    return NodeResult(
        unseen=tuple(sorted(unseen)),
        clock=clock,
        read_bandwidth=bandwidth,
        read_fault=fault,
        links_fault=exchange.measure_links(plan) if plan.rounds else None,
    )


def _health(folder: Path, server: ClockServer) -> Health:
    visible_gpus, absent = gpus()
    local = os.environ.get(LOCAL_PATH)
    return Health(
        clock_address=server.address,
        clock_port=server.port,
        clock_token=server.token,
        versions=_versions(),
        shared=_space(folder),
        local=_space(Path(local)) if local else None,
        gpus=visible_gpus,
        no_gpus=absent,
    )


def _versions() -> dict[str, str]:
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = "not installed"
    return {"vflops": vflops.__version__, "Python": platform.python_version(), "torch": torch}


def _space(path: Path) -> Space:
    try:
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"vflops")
        return Space(path=str(path), free_bytes=shutil.disk_usage(path).free)
    except OSError as error:
        return Space(path=str(path), fault=error.strerror or str(error))


def _write(path: Path, size_bytes: int) -> None:
    """Write a file of at most ``size_bytes`` for another node to read; drop it from the cache."""
    block = os.urandom(min(_BLOCK_BYTES, size_bytes))
    end_s = time.monotonic() + _MAX_IO_S
    with path.open("wb") as file:
        while file.tell() < size_bytes and time.monotonic() < end_s:
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(path: Path) -> tuple[float | None, str | None]:
    """Return the bytes per second at which a file is read, or a fault."""
    done = 0
    block = bytearray(_BLOCK_BYTES)
    try:
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            start_s = time.perf_counter()
            while (count := file.readinto(block)) and time.perf_counter() < start_s + _MAX_IO_S:
                done += count
            took_s = time.perf_counter() - start_s
    except OSError as error:
        return None, f"{path.name}: {error.strerror or error}"
    return (done / took_s, None) if done else (None, f"{path.name} is empty")
