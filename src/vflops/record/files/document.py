"""The base class of JSON file formats: each file names its schema and version."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

import vflops
from vflops.errors import FolderError
from vflops.record.files import atomic
from vflops.record.files.read_once import read_bytes
from vflops.record.files.strict_json import parse_json


class Data(BaseModel):
    """Data that is written to or read from a file; immutable, and unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class Document(Data):
    """A JSON file that names its schema and version; newer versions cannot be read."""

    schema_name: ClassVar[str]
    schema_version: ClassVar[int] = 1

    def to_json(self) -> str:
        """Return the text of the file: the same bytes for the same data."""
        tag = f"{self.schema_name}/{self.schema_version}"
        return atomic.json_text({"schema": tag, **self.model_dump(mode="json")})

    def digest(self) -> str:
        """Return the SHA-256 of the file's text."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def write(self, path: Path, *, private: bool = False) -> None:
        """Write the file atomically; if ``private``, for this user only."""
        atomic.write_text(path, self.to_json(), private=private)

    @classmethod
    def writer(cls, data: dict[str, Any]) -> str | None:
        """Return the version of vflops that wrote a file with ``data``; None if it is not known."""
        return None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file, or raise a ``FolderError`` that says what is wrong with it."""
        return cls.parse(read_json(path), path)

    @classmethod
    def parse(cls, data: dict[str, Any], source: Path) -> Self:
        """Return ``data``, read from ``source``, as an instance, or raise ``FolderError``."""
        tag = data.pop("schema", None)
        name, _, version = str(tag).rpartition("/")
        if name != cls.schema_name or not re.fullmatch("[1-9][0-9]{0,5}", version):
            raise FolderError(
                f"{source} is not a {cls.schema_name} file: its schema is {tag!r}",
                hint=f"expected {cls.schema_name}/{cls.schema_version}",
            )
        if int(version) > cls.schema_version:
            writer = cls.writer(data)
            raise FolderError(
                f"{source} was written by a newer vflops{f', {writer}' if writer else ''}: its "
                f"schema is {tag}, but vflops {vflops.__version__} reads up to "
                f"{cls.schema_name}/{cls.schema_version}",
                hint=f"upgrade: pip install 'vflops>={writer}'"
                if writer
                else "upgrade: pip install -U vflops",
            )
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise FolderError(
                f"{source} does not match its schema {tag}: {first_fault(error)}",
                hint="the file was changed or damaged: restore it from a backup, or run again",
            ) from error


def read_json(path: Path, name: Path | None = None) -> dict[str, Any]:
    """Read a JSON object from ``path``, or raise ``FolderError`` with the file and the position.

    The error names the file ``name``, by default ``path``.
    """
    name = name or path
    try:
        data = parse_json(read_bytes(path))
    except FileNotFoundError as error:
        raise FolderError(f"{name} does not exist") from error
    except OSError as error:
        raise FolderError(f"cannot read {name}: {error.strerror or error}") from error
    except ValueError as error:  # not JSON, not Unicode, nested too deeply, a key twice
        raise FolderError(f"{name} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise FolderError(f"{name} contains a {type(data).__name__}, expected a JSON object")
    return data


def first_fault(error: ValidationError) -> str:
    """Return the first validation error as text: field, message and value."""
    fault = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in fault["loc"]) or "the object"
    value = fault.get("input")
    suffix = "" if isinstance(value, dict | list) else f" (it is {value!r})"
    return f"{where}: {fault['msg'].lower()}{suffix}"
