"""A launcher that runs the jobs of an ensemble one after the other on this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Mapping, Sequence

from vflops.config.launch import LaunchSettings
from vflops.launch.launcher import Ending, Launcher
from vflops.launch.placement import Node
from vflops.launch.sizing import local_node
from vflops.python_start import module_command
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord


class OneByOne(Launcher):
    """One agent at a time, with all cores and accelerators."""

    name = "one-by-one"
    is_this_machine = True

    @classmethod
    def nodes(cls, settings: LaunchSettings, device: str) -> list[Node]:
        """Return this machine."""
        return [local_node(settings, device)]

    def __init__(self, folder: RunFolder, records: Sequence[JobRecord]) -> None:
        self._folder = folder
        self._job, self._agent = 0, None  # type: int, subprocess.Popen[bytes] | None

    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        """Start the first of the jobs if none is running."""
        if self.active_jobs():
            return ()
        self._job = next(iter(jobs))
        command = module_command("vflops.launch.agent", self._folder.path, self._job)
        with (self._folder.job_file(self._job).parent / "agent.log").open("ab") as log:
            self._agent = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        return [self._job]

    def active_jobs(self) -> Collection[int]:
        """Return the job that is running."""
        return () if self._agent is None or self._agent.poll() is not None else (self._job,)

    def location(self, job: int) -> str:
        """Return that the job has the machine, or waits for it."""
        return "this machine" if job in self.active_jobs() else "waiting for its turn"

    def ending(self, job: int) -> Ending:
        """Return the exit code of the agent if it was the last one."""
        code = self._agent.poll() if self._agent is not None and job == self._job else None
        return Ending(reason=None if code is None else f"its agent ended with code {code}")

    def stop(self) -> None:
        """Ask the agent to write a checkpoint and end."""
        if self._agent is not None:
            self._agent.terminate()

    def kill(self) -> None:
        """End the agent, and with it its ranks."""
        if self._agent is not None:
            self._agent.kill()
