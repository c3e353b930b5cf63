"""Runs preflight probes as processes on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from vflops.launch.job_script import LOCAL_PATH
from vflops.launch.probes import LOG, PROBE, Probes
from vflops.launch.scheduler import JobStatus
from vflops.launch.site import SiteSettings


class ProbeProcesses:
    """Processes that were started here, and the nodes that they stand for."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        nodes: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
    ) -> None:
        self._nodes = tuple(nodes)
        with (folder / LOG).open("ab") as log:
            self._processes = [
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    env={**os.environ, **environment},
                )
                for command in commands
            ]

    def look(self) -> JobStatus:
        """Return whether any of the probes is running; they never wait in a queue."""
        running = any(process.poll() is None for process in self._processes)
        return JobStatus("running" if running else "ended", self._nodes, None)

    def stop(self) -> None:
        """Terminate each process and all that it started, then kill what is left."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._processes:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                for process in self._processes:
                    process.wait(timeout=5)


def start_probes(folder: Path, site: SiteSettings, name: str, probes: int = 1) -> Probes:
    """Start probes on this machine; tests use more than one to see how they meet."""
    command = [sys.executable, *PROBE, str(folder)]
    local = {LOCAL_PATH: os.path.expandvars(site.local_path)} if site.local_path else {}
    commands = [[*command, str(number)] for number in range(probes)]
    return ProbeProcesses(commands, [name] * probes, folder, local)
