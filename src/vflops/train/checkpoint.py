"""Checkpoints: written atomically and verified when read.

``step-000000123.state`` holds the state (``state_file``) and ``step-000000123.json`` its hash. The
JSON file is written last, so a checkpoint without one is incomplete. The last two checkpoints are
kept, and those at the ends of segments, from which an audit trains the next segment again.
Name, JSON file, state and log must agree on the step of a checkpoint.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from vflops.errors import FolderError, RunFailed
from vflops.record.files import atomic
from vflops.record.files.digest import file_digest
from vflops.record.files.document import Document
from vflops.record.formats.job_events import Checkpointed
from vflops.record.formats.recorded_names import checkpoint_file
from vflops.train.state_file import PackedState, StoredState

_KEPT_CHECKPOINTS = 2
_REMEDY = "remove this checkpoint to resume from an earlier one, or start a new run"


class CheckpointRecord(Document):
    """The JSON file that marks a checkpoint as complete."""

    schema_name: ClassVar[str] = "vflops.checkpoint"

    step: int
    sha256: str
    size_bytes: int
    kept: bool = False
    """Whether it is kept for audits, at the end of a segment."""


class Checkpoints:
    """The checkpoints of one job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write_state(self, step: int, state: PackedState) -> str:
        """Write a state to a temporary file and return its SHA-256; ``complete`` makes it valid."""
        atomic.make_folder(self._folder)
        for stale in self._folder.glob(".step-*.tmp"):  # left by an attempt that died
            stale.unlink(missing_ok=True)
        path, digest = self._temporary(step), hashlib.sha256()
        try:
            with path.open("wb") as file:
                for chunk in state.chunks():
                    digest.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with suppress(OSError):
                path.unlink()
            raise atomic.cannot_write(path, error, needed_b=state.size_bytes) from error
        return digest.hexdigest()

    def complete(self, checkpoint: Checkpointed) -> None:
        """Turn a written state into a checkpoint, and delete those that are no longer needed."""
        path = self._folder / checkpoint.file
        try:
            self._temporary(checkpoint.step).replace(path)
        except OSError as error:
            raise atomic.cannot_write(path, error) from error
        record = CheckpointRecord(
            step=checkpoint.step,
            sha256=checkpoint.sha256,
            size_bytes=checkpoint.size_bytes,
            kept=checkpoint.kept,
        )
        record.write(path.with_suffix(".json"))
        for marker in self._markers()[:-_KEPT_CHECKPOINTS]:
            if not _is_kept(marker):
                marker.unlink(missing_ok=True)
                marker.with_suffix(".state").unlink(missing_ok=True)

    def load(
        self,
        on_bad: Callable[[str, str], None] = lambda file, reason: None,
        committed: Collection[tuple[int, str]] | None = None,
    ) -> tuple[CheckpointRecord, StoredState] | None:
        """Return the newest readable checkpoint with its state; None if there is none.

        Tensors are read when they are asked for, so that a rank reads only what it needs.

        ``on_bad`` is called with the file name and the reason for each damaged checkpoint. Raise
        ``RunFailed`` if its step and hash are not in ``committed``, those in the log of the job:
        then it does not come from this training, or is not the state that its name says.
        """
        if any(self._folder.glob("step-*.pt")):
            raise RunFailed(
                f"{self._folder} has checkpoints of an earlier version of vflops",
                hint="resume the run with the version that started it, or start a new run",
            )
        for marker in reversed(self._markers()):
            path = marker.with_suffix(".state")
            try:
                record = CheckpointRecord.read(marker)
                state = self._read(path, record)
            except (FolderError, OSError) as error:
                on_bad(path.name, error.message if isinstance(error, FolderError) else str(error))
                continue
            if path.name != checkpoint_file(record.step):
                raise _other_step(path, f"{marker.name} says step {record.step:,}")
            if state.get("step") != record.step:
                raise _other_step(path, f"its state is the one after step {state.get('step')!r}")
            if committed is not None and (record.step, record.sha256) not in committed:
                steps = [step for step, sha256 in committed if sha256 == record.sha256]
                if steps:
                    raise _other_step(path, f"the log has its hash after step {steps[0]:,}")
                raise RunFailed(
                    f"{path} does not come from this training: its hash {record.sha256[:16]} is "
                    "not in the log of the job",
                    hint=_REMEDY,
                )
            return record, state
        return None

    def latest(self) -> str | None:
        """Return the name of the newest complete checkpoint; None if there is none."""
        markers = self._markers()
        return markers[-1].with_suffix(".state").name if markers else None

    def delete(self, files: list[str]) -> None:
        """Delete damaged checkpoints, so that they do not count as kept ones."""
        for name in files:
            for path in (self._folder / name, (self._folder / name).with_suffix(".json")):
                with suppress(OSError):
                    path.unlink()

    def _read(self, path: Path, record: CheckpointRecord) -> StoredState:
        if file_digest(path).sha256 != record.sha256:
            raise FolderError(f"{path.name} was changed after it was written: its hash differs")
        return StoredState.open(path)

    def _markers(self) -> list[Path]:
        """Return the JSON files of complete checkpoints, oldest first."""
        return sorted(self._folder.glob("step-*.json"))

    def _temporary(self, step: int) -> Path:
        return self._folder / f".{checkpoint_file(step)}.tmp"


def _other_step(path: Path, actual: str) -> RunFailed:
    return RunFailed(f"the name of {path} is that of another step: {actual}", hint=_REMEDY)


def _is_kept(marker: Path) -> bool:
    try:
        return CheckpointRecord.read(marker).kept
    except FolderError:
        return False
