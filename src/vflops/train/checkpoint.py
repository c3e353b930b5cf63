"""Checkpoints: written atomically and verified when read; the last two are kept.

``step-000000123.pt`` holds the state and ``step-000000123.json`` its hash. The JSON file is written
last, so a checkpoint without one is incomplete. State is loaded with ``weights_only=True``, so that
a file cannot execute code.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import torch

from vflops.errors import FolderError
from vflops.machine.devices import first_line
from vflops.record.files import atomic
from vflops.record.files.document import Document
from vflops.record.formats.job_events import Checkpointed

_KEPT_CHECKPOINTS = 2


class CheckpointRecord(Document):
    """The JSON file that marks a checkpoint as complete."""

    schema_name: ClassVar[str] = "vflops.checkpoint"

    step: int
    sha256: str
    size_bytes: int


class Checkpoints:
    """The checkpoints of one job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, step: int, state: dict[str, Any]) -> Checkpointed:
        """Write the state after ``step`` steps; delete all checkpoints but the last two."""
        atomic.make_folder(self._folder)
        buffer = io.BytesIO()
        torch.save(state, buffer)
        data = buffer.getbuffer()
        record = CheckpointRecord(
            step=step, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data)
        )
        path = self._path(step)
        atomic.write_bytes(path, data)
        record.write(path.with_suffix(".json"))
        for marker in self._markers()[:-_KEPT_CHECKPOINTS]:
            marker.unlink(missing_ok=True)
            marker.with_suffix(".pt").unlink(missing_ok=True)
        return Checkpointed(
            step=step, file=path.name, sha256=record.sha256, size_bytes=record.size_bytes
        )

    def load(
        self, on_bad: Callable[[str, str], None] = lambda file, reason: None
    ) -> tuple[str, dict[str, Any]] | None:
        """Return the name and the state of the newest readable checkpoint; None if there is none.

        ``on_bad`` is called with the file name and the reason for each damaged checkpoint.
        """
        for marker in reversed(self._markers()):
            path = marker.with_suffix(".pt")
            try:
                return path.name, self._read(path, CheckpointRecord.read(marker))
            except (FolderError, OSError, RuntimeError, pickle.UnpicklingError, EOFError) as error:
                on_bad(path.name, first_line(error))
        return None

    def latest(self) -> str | None:
        """Return the name of the newest complete checkpoint; None if there is none."""
        markers = self._markers()
        return markers[-1].with_suffix(".pt").name if markers else None

    def delete(self, files: list[str]) -> None:
        """Delete damaged checkpoints, so that they do not count as kept ones."""
        for name in files:
            for path in (self._folder / name, (self._folder / name).with_suffix(".json")):
                with suppress(OSError):
                    path.unlink()

    def _read(self, path: Path, record: CheckpointRecord) -> dict[str, Any]:
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != record.sha256:
            raise FolderError(f"{path.name} was changed after it was written: its hash differs")
        state: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        return state

    def _markers(self) -> list[Path]:
        """Return the JSON files of complete checkpoints, oldest first."""
        return sorted(self._folder.glob("step-*.json"))

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:09d}.pt"
