"""Ranks as processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from vflops.launch.core_binding import BINDING, numbers
from vflops.record.files import atomic

STORE = "VFLOPS_STORE"
"""Where ranks of several nodes meet; those of one meet in a file."""
_GRACE_S = 10.0
"""How long ranks may take to end once one of them failed, or once they were told to stop twice."""


class LocalRanks:
    """The processes of one job; each in a session of its own: the keyboard is the launcher's."""

    def __init__(
        self,
        command: Sequence[str],
        ranks: int,
        logs: Path,
        environment: Mapping[str, str],
        own: range | None = None,
    ) -> None:
        """``own``: those of all ``ranks`` that run here; None: all of them.

        ``BINDING`` in the environment: the cores of each of them.
        """
        binding = environment.get(BINDING)
        cores = [numbers(part) for part in binding.split(";")] if binding else []
        self._own = range(ranks) if own is None else own
        self._processes: list[subprocess.Popen[bytes]] = []
        self.first_failed: list[int] = []
        """The ranks that had failed when a failure was first seen."""
        for local, rank in enumerate(self._own):
            variables = {
                "RANK": str(rank),
                "LOCAL_RANK": str(local),
                "LOCAL_WORLD_SIZE": str(len(self._own)),
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
            if cores:  # its threads come later, and stay where it is
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(self._processes[-1].pid, cores[local])

    def poll(self) -> list[int | None]:
        """Exit codes by rank; None for those that run."""
        return [process.poll() for process in self._processes]

    def running(self) -> bool:
        """Whether the job goes on: a rank that failed ends the others after a moment."""
        codes = self.poll()
        if not self.first_failed:
            self.first_failed = [rank for rank, code in zip(self._own, codes, strict=True) if code]
        if self.first_failed:
            self._wait(_GRACE_S)
            self.kill()
            return False
        return any(code is None for code in codes)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every rank that runs."""
        for process in self._processes:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    process.send_signal(number)

    def kill(self) -> None:
        """End every rank and what it started, whatever state it is in."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _wait(self, limit_s: float) -> None:
        end_s = time.monotonic() + limit_s
        while time.monotonic() < end_s and any(code is None for code in self.poll()):
            time.sleep(0.05)
