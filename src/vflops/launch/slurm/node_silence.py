"""Whether a node that SLURM does not reach is alive: its agents write telemetry to the run folder.

A node may miss one of SLURM's pings because it is busy. Its jobs are lost only if it has also
stopped writing.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from time import monotonic

from vflops.record.folder import RunFolder
from vflops.record.formats.node import node_records, telemetry_file

SILENT_S = 90.0
"""The shortest such time. Telemetry is not synced: an NFS client writes pages 30 to 35 s after they
were changed, and another client caches the old size for a while."""
_MISSED_SAMPLES = 3
"""The same in samples of the telemetry, which may be rare."""


class NodeSilence:
    """Watches the telemetry of nodes while SLURM does not reach them."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        interval_s = folder.record.settings.telemetry.interval_s
        self.limit_s = max(SILENT_S, _MISSED_SAMPLES * interval_s)
        """How long a node must have written nothing."""
        self._sizes: dict[Path, int] = {}
        self._grown_s: dict[Path, float] = {}

    def is_silent(self, node: str, jobs: Collection[int]) -> bool:
        """Whether none of the jobs has written anything on the node for ``limit_s``.

        An agent that does not write telemetry yet, as it stages data, is not silent.
        """
        files = [self._telemetry(node, job) for job in jobs]
        now_s, silent = monotonic(), bool(files)
        for path in files:
            if path is None or not path.is_file():
                silent = False
                continue
            size = path.stat().st_size
            if self._sizes.get(path) != size:
                self._sizes[path], self._grown_s[path] = size, now_s
            silent &= now_s - self._grown_s[path] >= self.limit_s
        return silent

    def _telemetry(self, node: str, job: int) -> Path | None:
        """Return the file that the node's agent writes in the newest attempt at the job."""
        attempts = self._folder.logged_attempts(job)
        for record in node_records(attempts[-1]) if attempts else ():
            if record.name == node:
                return telemetry_file(attempts[-1], record.node)
        return None
