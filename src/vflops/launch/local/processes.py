"""Runs ranks as processes on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from vflops.launch.core_binding import BINDING
from vflops.launch.rank_completion import is_complete
from vflops.launch.rank_failures import is_reported
from vflops.launch.rehearsal import NODE_RANKS
from vflops.machine.probe import numbers
from vflops.record.files import atomic

STORE = "VFLOPS_STORE"
"""The variable with the address where the ranks of several nodes meet; one node uses a file."""
GRACE_S = 10.0
"""How long ranks may take to end after the job has ended."""
_FAILED_GRACE_S = 3.0
"""How long ranks may take to end after one of them failed: time to say how it affected them."""
_LOOK_S = 1.0
"""The time between two looks for failures that running ranks have reported."""


class LocalRanks:
    """The processes of one job, each in its own session: Ctrl-C reaches only the launcher."""

    def __init__(
        self,
        command: Sequence[str],
        ranks: int,
        logs: Path,
        environment: Mapping[str, str],
        local_ranks: range | None = None,
    ) -> None:
        """Start the ranks; ``local_ranks`` are those that run on this node, by default all.

        ``BINDING`` in the environment gives the cores of each of them.
        """
        binding = environment.get(BINDING)
        cores = [numbers(part) for part in binding.split(";")] if binding else []
        self._ranks = range(ranks) if local_ranks is None else local_ranks
        self._logs = logs
        self._processes: list[subprocess.Popen[bytes]] = []
        self.failures: dict[int, int] = {}
        """The exit codes of the ranks that failed before the others were ended."""
        self._looked_s = 0.0
        for local, rank in enumerate(self._ranks):
            variables = {
                "RANK": str(rank),
                "LOCAL_RANK": str(local),
                "LOCAL_WORLD_SIZE": environment.get(NODE_RANKS, str(len(self._ranks))),
                "WORLD_SIZE": str(ranks),
                "VFLOPS_LAUNCHER": str(os.getpid()),
            }
            path = logs / f"rank-{rank}.log"
            try:
                with path.open("wb") as output:
                    self._processes.append(
                        subprocess.Popen(
                            list(command),
                            stdin=subprocess.DEVNULL,
                            stdout=output,
                            stderr=output,
                            start_new_session=True,
                            env={**os.environ, **environment, **variables},
                        )
                    )
            except OSError as error:
                self.kill()
                raise atomic.cannot_write(path, error) from error
            if cores:  # threads that start later inherit its cores
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(self._processes[-1].pid, cores[local])

    def poll(self) -> list[int | None]:
        """Return the exit codes by rank; None for ranks that are running."""
        return [process.poll() for process in self._processes]

    def pids(self) -> dict[int, int]:
        """Return the process ids of the ranks that are running."""
        pairs = zip(self._ranks, self._processes, strict=True)
        return {rank: process.pid for rank, process in pairs if process.poll() is None}

    def failed(self) -> dict[int, int]:
        """Return the exit codes of the ranks that have failed so far, with files missing."""
        codes = zip(self._ranks, self.poll(), strict=True)
        return {rank: code for rank, code in codes if code and not is_complete(self._logs, rank)}

    def running(self, grace_s: float = _FAILED_GRACE_S) -> bool:
        """Whether the job is running; if a rank has failed, end the others after ``grace_s``.

        A rank has failed if it has reported an error, even if its process does not end.
        """
        if self.failed() or self._reported():
            self._wait(grace_s)
            self.failures = self.failed()
            self.kill()
            return False
        return any(code is None for code in self.poll())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every running rank."""
        for process in self._processes:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    process.send_signal(number)

    def kill(self) -> None:
        """Kill every rank and the processes that it started."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _reported(self) -> bool:
        """Whether a running rank has reported an error; read once a second."""
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_S:
            return False
        self._looked_s = now_s
        return any(is_reported(self._logs, rank) for rank in self.pids())

    def _wait(self, limit_s: float) -> None:
        end_s = time.monotonic() + limit_s
        while time.monotonic() < end_s and any(code is None for code in self.poll()):
            time.sleep(0.05)
