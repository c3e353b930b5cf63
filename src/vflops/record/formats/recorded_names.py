"""Names of files in records: the only types for a field that is joined to a path.

A record comes from a stranger. A name in it must not lead out of the folder that holds the record:
a reader would tell whether a file of its user exists, and whether it has a given content.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from vflops.record.files.file_names import name_fault

_MAX_MODEL_BYTES = 200
_NAME_SCHEMA = WithJsonSchema({"type": "string", "pattern": "^[^./-][^/]*$"})
_PATH_SCHEMA = WithJsonSchema({"type": "string", "pattern": "^[^./-][^/]*(/[^./-][^/]*)*$"})


def _plain_path(path: str) -> str:
    fault = name_fault(path)
    if fault:
        raise ValueError(f"it is {fault}, expected the name of a file in the folder")
    return path


def _plain_name(name: str) -> str:
    if "/" in name:
        raise ValueError("it is a path, expected the name of a file")
    return _plain_path(name)


def _file_part(name: str) -> str:
    if len(name.encode(errors="replace")) > _MAX_MODEL_BYTES or not name.isprintable():
        raise ValueError(f"it is not a name of at most {_MAX_MODEL_BYTES} printable characters")
    return name


def checkpoint_file(step: int) -> str:
    """Return the file name of the checkpoint after ``step`` steps."""
    return f"step-{step:09d}.state"


RecordedPath = Annotated[str, AfterValidator(_plain_path), _PATH_SCHEMA]
"""A path relative to the run folder, without ``..``: ``telemetry/imported-1.jsonl``."""
RecordedName = Annotated[str, AfterValidator(_plain_name), _NAME_SCHEMA]
"""The name of a file in a folder that is known from the record's own place."""
ModelName = Annotated[str, AfterValidator(_file_part)]
"""The name of a model, from which ``RunFolder.graph_file`` makes the name of a file."""


def is_linked(folder: Path, path: str) -> bool:
    """Whether a file of ``folder``, or a folder on the way to it, is a link."""
    step = folder
    for part in path.split("/"):
        step /= part
        if step.is_symlink():
            return True
    return False
