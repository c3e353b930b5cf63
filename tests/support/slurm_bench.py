"""A real SLURM on this machine, in its own folder, with the faults of a site.

Four nodes have CPUs, four others also GPUs: device files that SLURM hands out like GPUs, with
``CUDA_VISIBLE_DEVICES`` in jobs and steps, but nothing that could compute.

Each daemon runs under a guard: a process that adopts the daemon's orphans and kills them all when
its standard input ends. That happens at the end of the test run, even if it is killed.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "slurm-bench-"
NODES = ("n1", "n2", "n3", "n4")
GPU_NODES = ("g1", "g2", "g3", "g4")
GPU_TYPES = dict.fromkeys(("g1", "g2", "g3"), "h100") | {"g4": "a100"}
CPUS = 2
GPUS, GPU_NODE_CPUS = 8, 32
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
CPUs={cpus} RealMemory=4000
NodeName=g[1-3] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[5]}-{ports[7]}] \
CPUs={gpu_node_cpus} RealMemory=512000 Gres=gpu:h100:{gpus}
NodeName=g4 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[8]} \
CPUs={gpu_node_cpus} RealMemory=512000 Gres=gpu:a100:{gpus}
PartitionName=main Nodes=n[1-4] Default=YES MaxTime=60 PriorityTier=1
PartitionName=urgent Nodes=n[1-4] MaxTime=60 PriorityTier=9 PreemptMode=OFF
PartitionName=fragile Nodes=n[1-4] MaxTime=60 PriorityTier=1 PreemptMode=CANCEL
PartitionName=gpu Nodes=g[1-4] MaxTime=60 PriorityTier=1
PartitionName=brief Nodes=n[1-4] DefaultTime=1 MaxTime=60 PriorityTier=1
PartitionName=typed Nodes=g[1-4] MaxTime=60 PriorityTier=1
JobSubmitPlugins=lua
"""

_JOB_SUBMIT = """\
function slurm_job_submit(job, partitions, user)
  local gres = job.tres_per_node or job.gres or ""
  if job.partition == "typed" and string.find(gres, "gpu") and not string.find(gres, "100") then
    slurm.log_user("name the type of GPU: --gres=gpu:h100:1")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, user)
  return slurm.SUCCESS
end
"""
"""A rule of many sites, for the partition typed: a request for GPUs names their type."""


@contextmanager
def started() -> Iterator[SlurmBench]:
    """Start a cluster and yield it; if that is impossible, skip the test, or fail it in CI."""
    import pytest  # not at the top: the guards start this file without these

    from tests.support.host_name import resolves

    missing = [name for name in _COMMANDS if shutil.which(name, path=_SEARCH) is None]
    if os.geteuid() != 0:
        pytest.skip("starting a SLURM needs root")
    reason = ""
    if missing:
        reason = f"no {missing[0]} on this machine: apt-get install slurm-wlm munge"
    elif not resolves():
        reason = f"SLURM cannot resolve the host name {socket.gethostname()}"
    if reason:
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
    """Nodes n1 to n4 with two CPUs each, and g1 to g4 with 32 CPUs and eight GPUs each.

    The latter are the partition gpu, and are not in the default partition. The GPUs of g4 are of
    another type; the partition typed has the same nodes, and refuses requests for GPUs without a
    type. Jobs of the partition urgent preempt those of main, which are requeued, and those of
    fragile, which end. A job of the partition brief that sets no time limit has one minute.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _SEARCH}
        """The environment variables of processes that use this cluster."""
        self._guards: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start every daemon and wait until all nodes are idle."""
        host = socket.gethostname().split(".")[0]
        text = _CONFIGURATION.format(
            folder=self.folder,
            host=host,
            ports=_ports(),
            cpus=CPUS,
            gpus=GPUS,
            gpu_node_cpus=GPU_NODE_CPUS,
        )
        (self.folder / "slurm.conf").write_text(text)
        devices = f"{self.folder}/nvidia[0-{GPUS - 1}]"
        (self.folder / "gres.conf").write_text(
            "".join(
                f"NodeName={node} Name=gpu Type={kind} File={devices} Flags=nvidia_gpu_env\n"
                for node, kind in GPU_TYPES.items()
            )
        )
        (self.folder / "job_submit.lua").write_text(_JOB_SUBMIT)
        for number in range(GPUS):  # SLURM ignores files that are not devices
            null = os.makedev(1, 3)
            os.mknod(self.folder / f"nvidia{number}", stat.S_IFCHR | 0o666, null)
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
        for node in (*NODES, *GPU_NODES):
            self.start_slurmd(node)
        self.wait(lambda: set(self.node_states().values()) == {"idle"}, "eight idle nodes")

    def stop(self) -> None:
        """End every daemon and the processes that it started."""
        for guard in self._guards.values():
            _close(guard)
        for guard in self._guards.values():
            guard.wait(timeout=20)
        self._guards.clear()

    def run(self, *command: str) -> str:
        """Run one of SLURM's commands and return its output."""
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
        """Return the state of each node as SLURM names it: ``idle``, ``mixed``, ``down*``, …"""
        with suppress(AssertionError):
            lines = self.run("sinfo", "-hN", "-p", "main,gpu", "-o", "%N %T").splitlines()
            return dict(line.split() for line in lines)
        return {}  # slurmctld does not answer yet

    def kill_slurmd(self, node: str, *, noticed: bool = False) -> None:
        """Kill a node's daemon, not its jobs; SLURM notices in 15 s, or at once if ``noticed``."""
        guard = self._guards[node]
        for child in _children(guard.pid):
            if _command(child) == "slurmd":
                os.kill(child, signal.SIGKILL)
        if noticed:
            self._down(node)

    def kill_node(self, node: str, *, noticed: bool = False) -> None:
        """Kill a node with its jobs; SLURM notices within 15 s, or at once if ``noticed``."""
        guard = self._guards.pop(node)
        _close(guard)
        guard.wait(timeout=20)
        if noticed:
            self._down(node)

    def hide(self, node: str, folder: Path) -> None:
        """Make the node see an empty folder instead of this one, until the node is killed."""
        self.kill_node(node)
        words = f"mount -t tmpfs none {folder} && exec slurmd -D -N {node}"
        self._guard("unshare", "--mount", "bash", "-c", words, name=node)
        self.wait(lambda: self.node_states().get(node) == "idle", f"idle {node}")

    def start_slurmd(self, node: str) -> None:
        """Start the node's daemon; it recovers the steps that outlived the previous one."""
        if node in self._guards:
            self._guards[node].stdin.write(b"again\n")  # type: ignore[union-attr]
            self._guards[node].stdin.flush()  # type: ignore[union-attr]
        else:
            self._guard("slurmd", "-D", "-N", node, name=node)

    def restart_slurmctld(self) -> None:
        """Restart the controller."""
        self.stop_slurmctld()
        self.start_slurmctld()

    def stop_slurmctld(self) -> None:
        """End the controller, which saves its state first."""
        guard = self._guards.pop("slurmctld")
        for child in _children(guard.pid):
            os.kill(child, signal.SIGTERM)
        self.wait(lambda: not _children(guard.pid), "end of slurmctld")
        _close(guard)
        guard.wait(timeout=20)

    def start_slurmctld(self) -> None:
        """Start the controller with its saved state."""
        self._guard("slurmctld", "-D")

    def drain(self, node: str) -> None:
        """Let no new job start on the node."""
        self.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")

    def resume(self, node: str) -> None:
        """Let jobs start on the node again."""
        self.run("scontrol", "update", f"nodename={node}", "state=resume")

    def _down(self, node: str) -> None:
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    def reset(self) -> None:
        """Cancel all jobs and make all nodes idle, as after the start.

        A test that failed may have left the controller stopped.
        """
        if "slurmctld" not in self._guards:
            self.start_slurmctld()
            self.wait(self._answers, "answer of slurmctld")
        self.run("scancel", "--user=root")
        for node in (*NODES, *GPU_NODES):
            guard = self._guards.get(node)
            if guard is None or "slurmd" not in map(_command, _children(guard.pid)):
                self.start_slurmd(node)
        self.wait(self._are_idle, "eight idle nodes")

    def _answers(self) -> bool:
        with suppress(AssertionError):
            self.run("scontrol", "ping")
            return True
        return False

    def _are_idle(self) -> bool:
        """Whether all nodes are idle; resume those that are not usable."""
        states = self.node_states()
        for node, state in states.items():
            if state.startswith(("dra", "down")):
                with suppress(AssertionError):  # it may have come back by itself by now
                    self.resume(node)
        return set(states.values()) == {"idle"}

    def wait(self, until: Callable[[], bool], what: str, limit_s: float = 120.0) -> None:
        """Wait for a condition; after the limit, fail with the logs of the daemons."""
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
            start_new_session=True,  # Ctrl-C is for the tests
            cwd=self.folder,
            env={**os.environ, **self.environment},
        )


def _remove_stale() -> None:
    """Remove the folders of test runs that were killed."""
    for folder in Path("/tmp").glob(f"{_PREFIX}*"):
        if not Path("/proc", folder.name.removeprefix(_PREFIX).split("-")[0]).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _close(guard: subprocess.Popen[bytes]) -> None:
    assert guard.stdin is not None
    with suppress(BrokenPipeError):
        guard.stdin.close()


def _ports() -> list[int]:
    """Return a free port for slurmctld, and eight consecutive ones for the nodes."""
    for first in range(17000 + os.getpid() % 500 * 20, 32000, 20):
        ports = list(range(first, first + 9))
        with suppress(OSError):
            for port in ports:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return ports
    raise AssertionError("no nine free ports")


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
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
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children

    def prepare_child() -> None:
        libc.prctl(set_death_signal, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    line = b"first\n"
    while line:
        subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=prepare_child)
        line = sys.stdin.buffer.readline()
    while left := _children(os.getpid()):
        for child in left:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.02)


if __name__ == "__main__":
    _guard_main(sys.argv[1:])
