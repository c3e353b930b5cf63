"""Checkpoints and weights that a run keeps for audits, compared with the hashes in its log.

They are no part of a result, so the manifest does not list them; the log committed to each state
when it was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from vflops.errors import FolderError
from vflops.record.files.folder_listing import subfolders
from vflops.record.files.read_once import folder_entries
from vflops.record.formats.job_events import Checkpointed
from vflops.record.readout.contents import Contents
from vflops.results.evidence.evidence_names import is_state
from vflops.workloads.automl.search_events import CandidateTrained


@dataclass(frozen=True)
class CommittedStates:
    """The state files of a run, and what its log says about them."""

    contents: Contents

    @cached_property
    def present(self) -> dict[str, int]:
        """The names of the state files in the folder, sorted, with their sizes in bytes."""
        return dict(sorted(self._present()))

    @property
    def kept(self) -> dict[str, int]:
        """The state files that an audit can start from, with their sizes in bytes."""
        return {name: size for name, size in self.present.items() if name in self._kept}

    def fault(self, name: str) -> str | None:
        """Return what is wrong with a state file; None if the log committed to its hash."""
        committed = self._hashes.get(name)
        if committed is None:
            return f"{name}: the log has no such state"
        if self.contents.hash(self.contents.folder.path / name) not in committed:
            return f"{name}: does not match its hash in the log"
        return None

    def faults(self) -> list[str]:
        """Return what is wrong with the state files in the folder; missing ones are allowed."""
        try:
            return [fault for name in self.present if (fault := self.fault(name))]
        except FolderError as error:  # an invalid event, or a file that cannot be read
            return [error.message]

    @cached_property
    def _hashes(self) -> dict[str, set[str]]:
        hashes: dict[str, set[str]] = {}
        for name, sha256, _ in self._committed():
            hashes.setdefault(name, set()).add(sha256)
        return hashes

    @cached_property
    def _kept(self) -> set[str]:
        return {name for name, _, kept in self._committed() if kept}

    def _committed(self) -> Iterator[tuple[str, str, bool]]:
        """Yield the names and hashes of all states in the log, and whether they were kept."""
        history = self.contents.history
        for job in history.jobs:
            for event in history.events("checkpoint", job):
                state = event.payload(Checkpointed)
                yield f"jobs/{job}/checkpoint/{state.file}", state.sha256, state.kept
            for event in history.events("candidate-trained", job):
                trained = event.payload(CandidateTrained)
                if trained.weights_sha256 is not None:
                    yield f"weights/{trained.candidate}.state", trained.weights_sha256, True

    def _present(self) -> Iterator[tuple[str, int]]:
        run = self.contents.folder.path
        jobs = [f"jobs/{folder.name}/checkpoint" for folder in subfolders(run / "jobs")]
        for folder in (*jobs, "weights"):
            try:
                entries = folder_entries(run / folder)
            except OSError:  # most runs keep none
                continue
            for entry in entries:
                name = f"{folder}/{entry.name}"
                if is_state(name) and entry.is_file(follow_symlinks=False):
                    yield name, entry.stat(follow_symlinks=False).st_size
