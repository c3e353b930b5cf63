"""Names in records lead to files of the run folder only."""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic.fields import FieldInfo

import vflops
from tests.support.ranking_runs import submit
from vflops.data.packed_index import StoredFile
from vflops.errors import FolderError
from vflops.publish.evidence.verify import verify
from vflops.record.files.document import Data
from vflops.record.formats import recorded_names
from vflops.record.formats.job_events import Exhibited, JobTrained, KeptFile, PowerImported
from vflops.record.formats.recorded_names import is_linked
from vflops.record.log.events import Counted
from vflops.record.readout.contents import Contents
from vflops.results.evidence.logged_hashes import hash_mismatches
from vflops.results.evidence.manifest import FilePin
from vflops.workloads.automl.replay import LedgerWritten

SHA = "0" * 64
ROOMS = ("record", "results", "data", "workloads.automl")
NOT_JOINED = {
    ("DataFacts", "path"),  # where the data was; only training opens it
    ("Resumed", "file"),  # shown; a command names its own file
    ("Fallback", "file"),  # shown
    ("SkippedImage", "file"),  # shown
    ("SkippedText", "file"),  # shown
    ("LeftOut", "file"),  # shown
    ("Unreadable", "file"),  # in reports on data
    ("Repeated", "file"),
    ("YearReport", "file"),
    ("YearStatistics", "file"),  # compared
    ("JudgedRun", "path"),  # shown
}
"""Fields with such a name that no reader of a run folder joins to a path."""


def with_name(kind: type[Data], name: str) -> dict[str, Any]:
    fields: dict[type[Data], dict[str, Any]] = {
        PowerImported: {"file": name, "sha256": SHA},
        JobTrained: {"job": 1, "attempt": 0, "sha256": SHA, "files": {name: SHA}},
        Exhibited: {"file": name, "sha256": SHA, "size_bytes": 1},
        KeptFile: {"file": name, "sha256": SHA, "size_bytes": 1},
        LedgerWritten: {"file": name, "sha256": SHA, "candidates": 1},
        StoredFile: {"file": name, "bytes": 1, "sha256": SHA},
        FilePin: {"path": name, "sha256": SHA, "size_bytes": 1},
    }
    return fields[kind]


KINDS = (PowerImported, JobTrained, Exhibited, KeptFile, LedgerWritten, StoredFile, FilePin)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../x", "a/../../x", "..", ".", "", "a//b", "a\0b", ".hidden", "x" * 300],
)
def test_a_name_that_leads_elsewhere_is_refused(kind: type[Data], name: str) -> None:
    assert kind.model_validate(with_name(kind, "node-0.json"))
    with pytest.raises(ValueError, match="it is"):
        kind.model_validate(with_name(kind, name))


def test_only_paths_of_the_run_folder_have_folders() -> None:
    PowerImported.model_validate(with_name(PowerImported, "telemetry/imported-1.jsonl"))
    with pytest.raises(ValueError, match="expected the name of a file"):
        Exhibited.model_validate(with_name(Exhibited, "a/b"))


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "a\nb"])
def test_the_name_of_a_model_makes_a_file_name(name: str) -> None:
    Counted(model="package.module:name", batch=1, sha256=SHA)
    with pytest.raises(ValueError, match="printable"):
        Counted(model=name, batch=1, sha256=SHA)


def test_every_field_that_names_a_file_has_the_shared_type() -> None:
    named = {
        (model.__name__, name): model.model_fields[name]
        for model in _models()
        for name in ("file", "files", "path")
        if name in model.model_fields and _is_text(model.model_fields[name].annotation)
    }
    unchecked = {place for place, field in named.items() if not _is_checked(field)}
    assert unchecked <= NOT_JOINED
    assert len(named) > len(KINDS)


def _models() -> list[type[Data]]:
    for room in ROOMS:
        package = importlib.import_module(f"vflops.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"vflops.{room}."):
            if not _needs_torch(module.name):
                importlib.import_module(module.name)
    found, queue = [], [Data]
    while queue:
        model = queue.pop()
        found.append(model)
        queue.extend(model.__subclasses__())
    rooms = tuple(f"{vflops.__name__}.{room}." for room in ROOMS)
    return [model for model in found if model.__module__.startswith(rooms)]


def _needs_torch(module: str) -> bool:
    source = Path(*vflops.__path__).parent / Path(*module.split("."))
    path = source / "__init__.py" if source.is_dir() else source.with_suffix(".py")
    return "import torch" in path.read_text() or "from torch" in path.read_text()


def _is_text(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType):
        return any(map(_is_text, get_args(annotation)))
    return annotation is str or get_origin(annotation) is dict


def _is_checked(field: FieldInfo) -> bool:
    checks = (recorded_names._plain_name, recorded_names._plain_path)
    kinds = repr((field.metadata, field.annotation))
    return any(check.__name__ in kinds for check in checks)


def test_a_link_is_no_file_of_the_run(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the publisher")
    digest = hashlib.sha256(secret.read_bytes()).hexdigest()
    run = submit(tmp_path / "runs")
    (run.path / "telemetry").symlink_to(tmp_path)
    with run.start_attempt(job=0) as log:
        log.write("power-imported", file="telemetry/secret", sha256=digest)
    assert is_linked(run.path, "telemetry/secret")
    faults = hash_mismatches(Contents(run))
    assert faults["telemetry/secret"] == ["telemetry/secret: a link, not a file"]


@pytest.mark.parametrize("file", ["/etc/passwd", "../../secret", "telemetry/../../x"])
def test_an_event_with_such_a_name_tells_nothing_about_the_file(tmp_path: Path, file: str) -> None:
    run = submit(tmp_path / "runs")
    run.manifest_file.unlink()
    with run.start_attempt(job=0) as log:
        log.write("power-imported", file=file, sha256=SHA)
    lines = "\n".join(verify(run.path).alterations)
    assert "not a power-imported event" in lines
    assert "but its hash is in the log" not in lines
    assert "does not match its hash" not in lines
    with pytest.raises(FolderError, match="expected the name of a file"):
        Contents(run).history.events("power-imported")[0].payload(PowerImported)
