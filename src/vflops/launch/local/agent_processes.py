"""The agents of a run on this machine, recognised by their command: the run folder and a job."""

from __future__ import annotations

import signal
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from vflops.launch.process_signals import has_open, signal_process
from vflops.record.folder import RunFolder


class AgentProcesses:
    """Agents that can be asked to stop, or killed."""

    def __init__(self, folder: RunFolder, *, controlled: bool) -> None:
        """``controlled``: a live controller will itself ask the agents that hold their locks."""
        self._folder = folder
        # An agent that is starting up does not hold its lock yet, so the controller skips it.
        self._controlled = {
            pid for job, pid in self._pids().items() if controlled and self._holds_lock(job, pid)
        }
        self._asked = set(self._controlled)

    def active_jobs(self) -> Collection[int]:
        """Return the jobs that have a running agent."""
        return self._pids()

    def stop(self) -> None:
        """Ask each agent once to write a checkpoint and end."""
        for job, pid in self._pids().items():
            if pid not in self._asked:
                self._asked.add(pid)
                self._send(job, pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the agents."""
        for job, pid in self._pids().items():
            self._send(job, pid, signal.SIGKILL)

    def controller_gone(self) -> None:
        """Ask those agents too that the controller should have asked."""
        self._asked -= self._controlled

    def _send(self, job: int, pid: int, number: signal.Signals) -> None:
        signal_process(pid, number, lambda: _job_of(pid, self._folder) == job)

    def _holds_lock(self, job: int, pid: int) -> bool:
        return has_open(pid, self._folder.job_lock(job))

    def _pids(self) -> dict[int, int]:
        pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
        jobs = ((_job_of(pid, self._folder), pid) for pid in pids)
        return {job: pid for job, pid in jobs if job is not None}


def _job_of(pid: int, folder: RunFolder) -> int | None:
    """Return the job of this run that the process is the agent of; None if it is not an agent."""
    with suppress(OSError, ValueError, IndexError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        at = words.index("vflops.launch.agent")
        if words[at - 1] == "-m":
            run = Path(f"/proc/{pid}/cwd").readlink() / words[at + 1]
            if run.resolve() == folder.path.resolve():
                return int(words[at + 2])
    return None
