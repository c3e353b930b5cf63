"""Steps that have ended for good while their allocation still runs for other jobs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import ClassVar

from vflops.errors import FolderError
from vflops.launch.job_script import steps_folder
from vflops.record.files.document import Document

SUFFIX = ".end.json"
"""The name of the file in the folder of steps is that of the job with this suffix."""


class StepEnd(Document):
    """``<job>.end.json`` of a step that did not finish its job and that its script gives up."""

    schema_name: ClassVar[str] = "vflops.step-end"

    job: int
    code: int
    """The exit code of the step."""

    @classmethod
    def bash_format(cls) -> str:
        """Return the text of the file for bash's ``printf``, which needs the job and the code."""
        return f'{{"schema": "{cls.schema_name}/{cls.schema_version}", "job": %d, "code": %d}}'


class StepEnds:
    """Reads the files of ended steps, and remembers when each was first seen."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[StepEnd, float]] = {}

    def of(self, script: Path) -> Mapping[int, tuple[StepEnd, float]]:
        """Return the ended steps of a script by job, and when this process first saw each."""
        found = {}
        for path in steps_folder(script).glob(f"*{SUFFIX}"):
            if path not in self._known:
                with suppress(FolderError):
                    self._known[path] = StepEnd.read(path), monotonic()
            if path in self._known:
                end, seen_s = self._known[path]
                found[end.job] = end, seen_s
        return found
