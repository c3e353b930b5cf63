"""All jobs of a run as steps of one allocation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from vflops.launch.scheduled_jobs import ScheduledJobs
from vflops.launch.slurm.sbatch_script import STOP, allocation_script
from vflops.record.files import atomic


class GangScheduledJobs(ScheduledJobs):
    """Jobs that start together in one allocation.

    The script itself retries a step that dies; jobs that have not finished when it ends get another
    allocation.
    """

    gang_scheduled = True

    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        """Submit one allocation for all of the jobs, once the previous one has ended."""
        if self.active_jobs():
            return ()
        steps = self._layout.steps(jobs)
        nodes = max(step.first_node + step.nodes for step in steps)
        number = 1 + len(list(self._folder.path.glob("allocation-*.sh")))
        folder, slots, exclude = self._folder.path, self._layout.slots, self._excluded()
        request = self._request(f"allocation-{number}", folder, nodes, slots, exclude, 1)
        script = partial(allocation_script, run=self._run, steps=steps)
        self._submit(steps, request, script)
        return jobs

    def _prevent_retries(self) -> None:
        # A script that waits before a retry has no step that could be signalled.
        for script in {record.script for record in self._submitted.values() if record.script}:
            atomic.write_text((self._folder.path / script).with_suffix(STOP), "")
