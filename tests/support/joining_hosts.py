"""Four hosts with names, addresses and ssh servers of their own, and one shared file system.

They are network and UTS namespaces of this machine. Needs root, iproute2 and openssh-server.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.links_bench import Host, hosts, lacking

NAMES = ("h1", "h2", "h3", "h4")
_SEARCH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_CONFIGURATION = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
"""
VFLOPS = (sys.executable, "-m", "vflops")


class JoiningHosts:
    """The hosts, on which commands run as on machines of a cluster."""

    def __init__(self, folder: Path, namespaces: list[Host]) -> None:
        self.folder = folder
        self.address = {name: host.address for name, host in zip(NAMES, namespaces, strict=True)}
        self._hosts = dict(zip(NAMES, namespaces, strict=True))
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, name: str, *command: object, **variables: str) -> subprocess.Popen[str]:
        """Start a command on a host; its output is one stream."""
        rename = 'hostname "$0"; exec "$@"'
        process = subprocess.Popen(
            self._hosts[name].words(
                *("unshare", "--uts", "sh", "-c", rename, name, *map(str, command))
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            cwd=self.folder,
            env={**_environment(), **variables},
        )
        self._processes.append(process)
        return process

    def vflops(self, name: str, *words: object, **variables: str) -> subprocess.Popen[str]:
        """Start vflops on a host."""
        return self.start(name, *VFLOPS, *words, **variables)

    def pids(self, name: str) -> list[int]:
        """Return the processes of a host."""
        words = [shutil.which("ip", path=_SEARCH) or "ip", "netns", "pids"]
        done = subprocess.run(
            [*words, self._hosts[name].namespace], capture_output=True, text=True, check=True
        )
        return [int(pid) for pid in done.stdout.split()]

    def crash(self, name: str) -> None:
        """Kill everything on a host at once, as a power failure does."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in self.pids(name):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def serve_ssh(self) -> None:
        """Start an ssh server on every host, and wait until all of them answer."""
        for name in NAMES:
            self.start(name, "/usr/sbin/sshd", "-D", "-e", "-f", self.folder / "sshd_config")
        for name in NAMES:
            end_s = time.monotonic() + 20
            while self.start("h1", *self.ssh(name), "true").wait(20):
                assert time.monotonic() < end_s, f"no ssh server on {name}"
                time.sleep(0.2)

    def ssh(self, name: str) -> list[str]:
        """Return the start of a command line that runs a command on a host by ssh."""
        return [*self.ssh_client, self.address[name]]

    @property
    def ssh_client(self) -> list[str]:
        """The ssh client with the user's key."""
        options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR")
        words = [word for option in options for word in ("-o", option)]
        return ["ssh", "-i", str(self.folder / "user_key"), *words]

    def stop(self) -> None:
        """End everything on all hosts."""
        for name in NAMES:
            self.crash(name)
        for process in self._processes:
            process.wait(20)
            if process.stdout is not None:
                process.stdout.close()


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    return {
        **kept,
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "passive",
    }


@contextmanager
def joining_hosts(folder: Path) -> Iterator[JoiningHosts]:
    """Yield four hosts that share ``folder``; skip the test if they cannot be made here."""
    import pytest

    if reason := lacking():
        pytest.skip(reason)
    for key in ("host_key", "user_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True
        )
    (folder / "sshd_config").write_text(_CONFIGURATION.format(folder=folder))
    Path("/run/sshd").mkdir(exist_ok=True)
    with hosts(len(NAMES), rate_bits=1e10) as namespaces:
        bench = JoiningHosts(folder, namespaces)
        table = "127.0.0.1 localhost\n" + "".join(
            f"{address} {name}\n" for name, address in bench.address.items()
        )
        folders = [Path("/etc/netns") / host.namespace for host in namespaces]
        try:
            for path in folders:
                path.mkdir(parents=True)
                (path / "hosts").write_text(table)
            yield bench
        finally:
            bench.stop()
            for path in folders:
                shutil.rmtree(path, ignore_errors=True)
