"""Hosts with shaped links on one machine: network namespaces around switches, one rank on each.

``tc`` limits the bandwidth in both directions; the delay is that of the machine's own links. Needs
root and iproute2. Everything is in its own namespaces and is removed with them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.links_start import Starter

_PREFIX = "vflops-"
_SEARCH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_LINK = "eth0"
"""The interface of every host."""
_BURST_S = 0.5e-3
"""How much a shaped link may send at once; with more, short messages would not be shaped."""
_LEAST_BURST = 128 << 10
_QUEUE_S = 0.05


@dataclass(frozen=True)
class Host:
    """A network namespace with one link."""

    namespace: str
    address: str

    def words(self, *command: str) -> list[str]:
        """Return the command line that runs ``command`` in the namespace."""
        return [_tool("ip"), "netns", "exec", self.namespace, *command]

    def sent_bytes(self) -> int:
        """Return the bytes that its link has sent so far, including headers."""
        output = _run("ip", "-n", self.namespace, "-s", "-j", "link", "show", "dev", _LINK)
        return int(json.loads(output)[0]["stats64"]["tx"]["bytes"])


class Ranks:
    """The ranks of a job, one per host, each on one core."""

    def __init__(
        self,
        hosts: list[Host],
        words: list[str],
        logs: Path,
        store: str | None,
        environment: Mapping[str, str],
        first_core: int = 0,
        starter: Starter | None = None,
    ) -> None:
        cores = sorted(os.sched_getaffinity(0))
        self._starter = starter
        self._processes: list[subprocess.Popen[bytes]] = []
        self._forked: list[int] = []
        for rank, host in enumerate(hosts):
            variables = {
                "RANK": str(rank),
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
                "WORLD_SIZE": str(len(hosts)),
                "GLOO_SOCKET_IFNAME": _LINK,
                "OMP_NUM_THREADS": "1",
                "OMP_WAIT_POLICY": "passive",
                "VFLOPS_LAUNCHER": str(os.getpid()),
                **({} if store is None else {"VFLOPS_STORE": store}),
            }
            core, path = cores[(first_core + rank) % len(cores)], logs / f"rank-{rank}.log"
            given = {**environment, **variables}
            if starter is not None:
                program = words[1:]  # without the interpreter
                self._forked.append(starter.start(program, host.namespace, core, path, given))
                continue
            with path.open("wb") as log:
                process = subprocess.Popen(
                    ["taskset", "-c", str(core), *host.words(*words)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **given},
                )
            self._processes.append(process)

    def wait(self, limit_s: float = 600.0) -> None:
        """Wait until all have ended; if one fails, end the others."""
        codes: list[int | None] = []
        try:
            if self._starter is not None:
                codes = self._starter.wait(self._forked, limit_s)
            for process in self._processes:
                codes.append(process.wait(limit_s))
                if codes[-1]:
                    break
        finally:
            for process in self._processes:
                process.kill()
                process.wait()
        failed = [f"rank {rank}: exit code {code}" for rank, code in enumerate(codes) if code != 0]
        if failed:
            raise RuntimeError(", ".join(failed))


def train(
    run: Path,
    job: int,
    attempt: int,
    hosts: list[Host],
    logs: Path,
    port: int,
    first_core: int = 0,
    starter: Starter | None = None,
) -> Ranks:
    """Start one attempt at a job of a planned run, with its ranks on the hosts."""
    words = [sys.executable, "-m", "vflops.train.rank", str(run), str(job), str(attempt)]
    store = f"tcp://{hosts[0].address}:{port}" if len(hosts) > 1 else None
    return Ranks(hosts, words, logs, store, {}, first_core, starter)


def missing_tools() -> str | None:
    """Return which tools of iproute2 and util-linux are missing; None if none is."""
    missing = [tool for tool in ("ip", "tc", "taskset") if not shutil.which(tool, path=_SEARCH)]
    return f"no {', '.join(missing)}: install iproute2 and util-linux" if missing else None


def lacking() -> str | None:
    """Return why hosts cannot be created here; None if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := missing_tools():
        return missing
    try:
        with hosts(1, rate_bits=1e9):
            return None
    except subprocess.CalledProcessError as error:
        return f"no namespaces or no shaping here: {error.stderr.strip()}"


@contextmanager
def hosts(
    count: int, *, rate_bits: float, nodes: int = 1, far_bits: float | None = None
) -> Iterator[list[Host]]:
    """Create ``count`` hosts with links of ``rate_bits`` each way.

    With several ``nodes`` there is one switch per node, neighbours are on the same switch, and each
    switch has one link of ``far_bits`` to the others.
    """
    _sweep()
    tag = f"{_PREFIX}{os.getpid()}-"
    switch = f"{tag}switch"
    created = [Host(f"{tag}h{number}", f"10.77.0.{number + 1}") for number in range(count)]
    try:
        _run("ip", "netns", "add", switch)
        core = "core" if nodes > 1 else "node0"
        for bridge in {core, *(f"node{node}" for node in range(nodes))}:
            _run("ip", "-n", switch, "link", "add", bridge, "type", "bridge", "stp_state", "0")
            _run("ip", "-n", switch, "link", "set", bridge, "up")
        for node in range(nodes if nodes > 1 else 0):
            up, down = f"up{node}", f"down{node}"
            _run("ip", "-n", switch, "link", "add", up, "type", "veth", "peer", "name", down)
            _join(switch, up, f"node{node}", far_bits or rate_bits)
            _join(switch, down, core, far_bits or rate_bits)
        for number, host in enumerate(created):
            _connect(host, switch, f"host{number}", f"node{number * nodes // count}", rate_bits)
        yield created
    finally:
        for host in created:
            with suppress(subprocess.CalledProcessError):
                _run("ip", "netns", "del", host.namespace)
        with suppress(subprocess.CalledProcessError):
            _run("ip", "netns", "del", switch)


def _connect(host: Host, switch: str, port: str, bridge: str, rate_bits: float) -> None:
    name = host.namespace
    _run("ip", "netns", "add", name)
    _run(
        "ip",
        "-n",
        switch,
        "link",
        "add",
        port,
        "type",
        "veth",
        "peer",
        "name",
        _LINK,
        "netns",
        name,
    )
    _join(switch, port, bridge, rate_bits)
    _run("ip", "-n", name, "addr", "add", f"{host.address}/24", "dev", _LINK)
    _run("ip", "-n", name, "link", "set", "lo", "up")
    _run("ip", "-n", name, "link", "set", _LINK, "up")
    _shape(name, _LINK, rate_bits)


def _join(namespace: str, port: str, bridge: str, rate_bits: float) -> None:
    _run("ip", "-n", namespace, "link", "set", port, "master", bridge)
    _run("ip", "-n", namespace, "link", "set", port, "up")
    _shape(namespace, port, rate_bits)


def _shape(namespace: str, port: str, rate_bits: float) -> None:
    burst = max(int(rate_bits / 8 * _BURST_S), _LEAST_BURST)
    limit = burst + int(rate_bits / 8 * _QUEUE_S)
    rule = ("tbf", "rate", f"{rate_bits:.0f}bit", "burst", str(burst), "limit", str(limit))
    _run("tc", "-n", namespace, "qdisc", "add", "dev", port, "root", *rule)


def _sweep() -> None:
    """Remove the namespaces of processes that were killed."""
    for line in _run("ip", "netns", "list").splitlines():
        name = line.split()[0]
        owner = name.removeprefix(_PREFIX).partition("-")[0]
        if name.startswith(_PREFIX) and owner.isdigit() and not Path("/proc", owner).exists():
            _run("ip", "netns", "del", name)


def _run(tool: str, *words: str) -> str:
    return subprocess.run([_tool(tool), *words], check=True, capture_output=True, text=True).stdout


def _tool(name: str) -> str:
    return shutil.which(name, path=_SEARCH) or name
