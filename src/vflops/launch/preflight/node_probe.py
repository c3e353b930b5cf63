"""The preflight probe of one node: checks the node itself and its links to the others.

Started as ``python -m vflops.launch.preflight.node_probe FOLDER K``.

Probes and the gatherer, which collects their results, exchange files in the shared folder. A probe
that cannot do that prints a fault, which the gatherer reads from the scheduler's output file.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from importlib import metadata
from pathlib import Path

import vflops
from vflops.errors import RunFailed, VflopsError
from vflops.launch import node_clock
from vflops.launch.clock_server import LOOPBACK, ClockServer, interface_towards
from vflops.launch.job_script import LOCAL_PATH
from vflops.launch.preflight.gpu_health import gpus
from vflops.launch.preflight.preflight_findings import (
    Hello,
    Link,
    Links,
    NodeResult,
    Order,
    Roll,
    Space,
)
from vflops.launch.waiting import free_port, node_name, wait_for
from vflops.python_start import module_command
from vflops.record.files.atomic import cannot_write

FAULT = "preflight fault "
"""The prefix of the line that a probe prints if it cannot take part."""
_BLOCK_BYTES = 1 << 22
READY_S = 30.0
"""How long torch may take to start on all nodes; loading it from a slow file system takes long."""
ROUND_S = {"gloo": 8.0, "nccl": 20.0}
"""How long two nodes may take to connect and measure."""
_SEE_S = 30.0
"""How long a file may take to become visible on all nodes."""
_CONNECT_S = 10.0
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
        fault = {"node": int(node), "name": name, "fault": str(error) or type(error).__name__}
        print(FAULT + json.dumps(fault), flush=True)
        return 3
    return 0


def links_s(backend: str) -> float:
    """Return the time limit for the links: three rounds of pairs, and one of all nodes."""
    return READY_S + 4 * ROUND_S[backend] + 10.0


def measure_s(backend: str) -> float:
    """Return how long a node may take for all measurements, once ``roll.json`` is written."""
    return _SEE_S + _CONNECT_S + 2 * _MAX_IO_S + links_s(backend)


def _probe(folder: Path, node: int, name: str) -> None:
    if wait_for([folder / "order.json"], 10.0):
        raise RunFailed(f"{folder} is not the folder of the machine that started the preflight")
    order = Order.read(folder / "order.json")
    server = ClockServer(LOOPBACK if order.local else interface_towards(()))
    try:
        _write(folder / f"read-{node}.bin", order.read_bytes)
    except OSError as error:
        raise cannot_write(folder, error) from error
    visible_gpus, absent = gpus()
    local = os.environ.get(LOCAL_PATH)
    hello = Hello(
        token=order.token,
        name=name,
        address=socket.gethostname(),
        clock_address=server.address,
        clock_port=server.port,
        clock_token=server.token,
        store_ports=(free_port(), free_port()),
        versions=_versions(),
        shared=_space(folder),
        local=_space(Path(local)) if local else None,
        gpus=visible_gpus,
        no_gpus=absent,
    )
    hello.write(folder / f"hello-{node}.json", private=True)
    if wait_for([folder / "roll.json"], 2 * order.limit_s):
        raise RunFailed(
            f"{folder} does not show new files of the machine that started the preflight"
        )
    roll = Roll.read(folder / "roll.json")
    if node not in roll.nodes:
        raise RunFailed(f"the node answered too late, after {order.limit_s:g} s")
    _measure(folder, order, roll, node).write(folder / f"found-{node}.json")
    # The others need this node's clock server until they have finished.
    wait_for([folder / f"found-{other}.json" for other in roll.nodes], measure_s(roll.backend))


def _measure(folder: Path, order: Order, roll: Roll, node: int) -> NodeResult:
    others = {folder / f"hello-{other}.json": other for other in roll.nodes}
    missing = wait_for(others, _SEE_S)
    unseen = {others[path] for path in missing}
    seen = {other: Hello.read(path) for path, other in others.items() if other not in unseen}
    unseen |= {other for other, hello in seen.items() if hello.token != order.token}
    first = roll.nodes[0]
    reading = None
    if node != first and first in seen:
        hello = seen[first]
        address = hello.clock_address or hello.address
        reading = node_clock.offset(address, hello.clock_port, _CONNECT_S, token=hello.clock_token)
    following = roll.nodes[(roll.nodes.index(node) + 1) % len(roll.nodes)]
    bandwidth, fault = _read(folder / f"read-{following}.bin")
    links, links_fault = _links(folder, roll, node) if len(roll.nodes) > 1 else ((), None)
    return NodeResult(
        unseen=tuple(sorted(unseen)),
        clock=reading,
        read_bandwidth=bandwidth,
        read_fault=fault,
        links=links,
        links_fault=links_fault,
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


def _links(folder: Path, roll: Roll, node: int) -> tuple[tuple[Link, ...], str | None]:
    """Measure the links in a child process: torch may hang or die if a network is broken."""
    command = module_command("vflops.launch.preflight.link_test", folder, node)
    threads = {"OMP_NUM_THREADS": "1", **os.environ}
    limit_s = links_s(roll.backend)
    fault = None
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, check=False, env=threads
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            fault = lines[-1]
    except subprocess.TimeoutExpired:
        fault = f"it did not end within {limit_s:g} s"
    path = folder / f"links-{node}.json"
    return (Links.read(path).links if path.is_file() else ()), fault


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
