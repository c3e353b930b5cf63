"""A real SLURM of four nodes on this machine, in a folder of its own, and the faults of a site.

Each daemon runs under a guard: a process that adopts whatever the daemon leaves behind and, when
its standard input ends, kills it all. The input ends with the test run, however that ends.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "slurm-bench-"
NODES = ("n1", "n2", "n3", "n4")
CPUS = 2
_COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol")
_SEARCH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

_CONFIGURATION = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdSpoolDir={folder}/spool.%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=1000
SchedulerParameters=bf_interval=2,sched_min_interval=100000,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=5
MessageTimeout=5
KillWait=2
MinJobAge=300
MpiDefault=none
GresTypes=gpu
NodeName=n[1-4] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[4]}] \
CPUs={cpus} RealMemory=4000 Gres=gpu:2
PartitionName=main Nodes=n[1-4] Default=YES MaxTime=60 PriorityTier=1
PartitionName=urgent Nodes=n[1-4] MaxTime=60 PriorityTier=9 PreemptMode=OFF
PartitionName=fragile Nodes=n[1-4] MaxTime=60 PriorityTier=1 PreemptMode=CANCEL
"""


@contextmanager
def started() -> Iterator[SlurmBench]:
    """A bench that answers; skips the test where it cannot be had, which fails it in CI."""
    import pytest  # not at the top: the guards start this file without it

    missing = [name for name in _COMMANDS if shutil.which(name, path=_SEARCH) is None]
    if os.geteuid() != 0:
        pytest.skip("starting a SLURM needs root")
    if missing:
        reason = f"no {missing[0]} on this machine: apt-get install slurm-wlm munge"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    _remove_stale()
    # Not in pytest's folder: the names of sockets must be short.
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir="/tmp"))
    bench = SlurmBench(folder)
    try:
        bench.start()
        yield bench
    finally:
        bench.stop()
        shutil.rmtree(folder, ignore_errors=True)


class SlurmBench:
    """Four nodes n1 to n4 of two CPUs and two make-believe GPUs.

    Jobs of the partition urgent preempt those of main, which go back to the queue, and those of
    fragile, which end.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _SEARCH}
        """What a process needs besides its own environment to talk to this SLURM."""
        self._guards: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start every daemon and wait until all nodes are idle."""
        host = socket.gethostname().split(".")[0]
        text = _CONFIGURATION.format(folder=self.folder, host=host, ports=_ports(), cpus=CPUS)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-1]\n")
        for number in range(2):
            (self.folder / f"gpu{number}").touch()  # SLURM asks no more of a card than a file
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.folder.chmod(0o755)
        files = {
            "key-file": key.name,
            "socket": "munge.socket",
            "pid-file": "munged.pid",
            "log-file": "munged.log",
            "seed-file": "munged.seed",
        }
        options = [f"--{option}={self.folder / name}" for option, name in files.items()]
        self._guard("munged", "--foreground", "--force", "--num-threads=2", *options)
        self.wait(lambda: (self.folder / "munge.socket").exists(), "munged")
        self.start_slurmctld()
        for node in NODES:
            self.start_slurmd(node)
        self.wait(lambda: set(self.node_states().values()) == {"idle"}, "four idle nodes")

    def stop(self) -> None:
        """End every daemon and whatever it started."""
        for guard in self._guards.values():
            _let_go(guard)
        for guard in self._guards.values():
            guard.wait(timeout=20)
        self._guards.clear()

    def run(self, *command: str) -> str:
        """The output of a command of SLURM's."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def node_states(self) -> dict[str, str]:
        """Each node's state in SLURM's words: ``idle``, ``mixed``, ``allocated``, ``down*``, …"""
        with suppress(AssertionError):
            lines = self.run("sinfo", "-hN", "-p", "main", "-o", "%N %T").splitlines()
            return dict(line.split() for line in lines)
        return {}  # slurmctld does not answer yet

    def kill_slurmd(self, node: str, *, noticed: bool = False) -> None:
        """The node's daemon dies; what it started runs on; SLURM sees it in 15 s or is told."""
        guard = self._guards[node]
        for child in _children(guard.pid):
            if _command(child) == "slurmd":
                os.kill(child, signal.SIGKILL)
        if noticed:
            self._down(node)

    def kill_node(self, node: str, *, noticed: bool = False) -> None:
        """The node loses its power, with all that ran there; SLURM sees it in 15 s or is told."""
        guard = self._guards.pop(node)
        _let_go(guard)
        guard.wait(timeout=20)
        if noticed:
            self._down(node)

    def hide(self, node: str, folder: Path) -> None:
        """The node has another, empty folder in the place of this one, until it loses its power."""
        self.kill_node(node)
        words = f"mount -t tmpfs none {folder} && exec slurmd -D -N {node}"
        self._guard("unshare", "--mount", "bash", "-c", words, name=node)
        self.wait(lambda: self.node_states().get(node) == "idle", f"idle {node}")

    def start_slurmd(self, node: str) -> None:
        """The node comes back; steps that outlived its daemon are found again."""
        if node in self._guards:
            self._guards[node].stdin.write(b"again\n")  # type: ignore[union-attr]
            self._guards[node].stdin.flush()  # type: ignore[union-attr]
        else:
            self._guard("slurmd", "-D", "-N", node, name=node)

    def restart_slurmctld(self) -> None:
        """The controller ends and comes back."""
        self.stop_slurmctld()
        self.start_slurmctld()

    def stop_slurmctld(self) -> None:
        """The controller ends; it saves its state first."""
        guard = self._guards.pop("slurmctld")
        for child in _children(guard.pid):
            os.kill(child, signal.SIGTERM)
        self.wait(lambda: not _children(guard.pid), "end of slurmctld")
        _let_go(guard)
        guard.wait(timeout=20)

    def start_slurmctld(self) -> None:
        """The controller comes back with what it had saved."""
        self._guard("slurmctld", "-D")

    def drain(self, node: str) -> None:
        """No new job starts on the node."""
        self.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")

    def resume(self, node: str) -> None:
        """Jobs may start on the node again."""
        self.run("scontrol", "update", f"nodename={node}", "state=resume")

    def _down(self, node: str) -> None:
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    def reset(self) -> None:
        """No job, and all nodes idle, as after the start."""
        self.run("scancel", "--user=root")
        states = self.node_states()
        for node in NODES:
            guard = self._guards.get(node)
            if guard is None or "slurmd" not in map(_command, _children(guard.pid)):
                self.start_slurmd(node)
            if states[node].startswith(("dra", "down")):
                self.resume(node)
        self.wait(lambda: set(self.node_states().values()) == {"idle"}, "four idle nodes")

    def wait(self, until: Callable[[], bool], what: str, limit_s: float = 40.0) -> None:
        """Wait until something is so; the daemons' last words are shown when it never is."""
        end_s = time.monotonic() + limit_s
        while not until():
            if time.monotonic() > end_s:
                logs = [path.read_text()[-2000:] for path in self.folder.glob("*.log")]
                raise AssertionError(f"no {what} after {limit_s:g} s\n" + "\n".join(logs))
            time.sleep(0.1)

    def _guard(self, *command: str, name: str = "") -> None:
        self._guards[name or command[0]] = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / f"{name or command[0]}.stderr.log").open("ab"),
            start_new_session=True,  # the keyboard's Ctrl-C is for the tests
            cwd=self.folder,
            env={**os.environ, **self.environment},
        )


def _remove_stale() -> None:
    """The folders of test runs that were killed; their guards ended the rest."""
    for folder in Path("/tmp").glob(f"{_PREFIX}*"):
        if not Path("/proc", folder.name.removeprefix(_PREFIX).split("-")[0]).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _let_go(guard: subprocess.Popen[bytes]) -> None:
    assert guard.stdin is not None
    with suppress(BrokenPipeError):
        guard.stdin.close()


def _ports() -> list[int]:
    """A free port for slurmctld, and four free ones in a row for the nodes."""
    for first in range(17000 + os.getpid() % 500 * 20, 32000, 20):
        ports = list(range(first, first + 5))
        with suppress(OSError):
            for port in ports:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return ports
    raise AssertionError("no five free ports")


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(each) for task in tasks for each in (task / "children").read_text().split()]
    return []


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _guard_main(command: list[str]) -> None:
    """Run the command, adopt its orphans, and kill them all when standard input ends."""
    set_child_subreaper, set_death_signal = 36, 1
    libc = ctypes.CDLL(None)
    libc.prctl(set_child_subreaper, 1, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead need no waiting for

    def begin() -> None:
        libc.prctl(set_death_signal, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    line = b"first\n"
    while line:
        subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=begin)
        line = sys.stdin.buffer.readline()
    while left := _children(os.getpid()):
        for child in left:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.02)


if __name__ == "__main__":
    _guard_main(sys.argv[1:])
