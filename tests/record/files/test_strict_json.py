"""JSON with a key twice is refused, wherever it is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.ranking_runs import submit
from vflops.errors import FolderError
from vflops.record.files.strict_json import parse_json
from vflops.record.folder import RunFolder
from vflops.record.log.events import read_log
from vflops.record.log.tail import Tail
from vflops.record.log.telemetry_log import read
from vflops.results.evidence.manifest import read_manifest

TWICE = (
    b'{"a":1,"a":2}',
    b'{"a": 1, "a": 1}',
    b'{"a" :1,"a":2}',
    b'{"a"\n:1,"a"\t:2}',
    b'{"a":1,"\\u0061":2}',
    b'[{"b":[{"a":1,"c":{},"a":2}]}]',
    b'{"x":":","a":1,"a":2}',
    b'{"x":"\\u0022:","a":1,"a":2}',
    b'{"":1,"":2}',
)
ONCE = (
    b"{}",
    b"[]",
    b'{"a":1,"A":2,"b":{"a":1}}',
    b'{"a" : ":", ":" :"\\"a\\":1", "c\\n": [":", "\\":"]}',
    b'{"x":":y","z":" :"}',
    b'[{"a":1},{"a":1}]',
    b"3.5",
    b'"a"',
    '{"ü": "é"}'.encode(),
)


@pytest.mark.parametrize("text", TWICE)
def test_a_key_twice_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match="twice"):
        parse_json(text)


@pytest.mark.parametrize("text", ONCE)
def test_other_json_is_as_elsewhere(text: bytes) -> None:
    assert parse_json(text) == json.loads(text)


@pytest.mark.parametrize("text", [b"{", b"", b"\xff", b"[" * 20_000, b'{"a":1}x', b'"\\ud800"'])
def test_what_is_not_json_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"line \d+|EOF|recursion"):
        parse_json(text)


def twice(path: Path, key: str, before: str = "") -> None:
    """Write a key of a file again, with another value, before the first one after ``before``."""
    text = path.read_text()
    start, found, end = text.partition(before) if before else ("", "", text)
    name = f'"{key}":'
    assert name in end
    path.write_text(start + found + end.replace(name, f'{name} "first", {name}', 1))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("run.json", "id"),
        ("manifest.json", "sha256"),
        ("manifest.json", "run"),
        ("jobs/1/job.json", "seed"),
    ],
)
def test_no_document_has_a_key_twice(tmp_path: Path, name: str, key: str) -> None:
    run = submit(tmp_path)
    twice(run.path / name, key)
    with pytest.raises(FolderError, match=f"the key '{key}' twice"):
        if name == "run.json":
            RunFolder.open(run.path)
        elif name == "manifest.json":
            read_manifest(run.path)
        else:
            run.effective_job(1)


def test_no_line_of_a_log_has_a_key_twice(tmp_path: Path) -> None:
    run = submit(tmp_path)
    log = run.attempt_folder(1, 0) / "events.jsonl"
    number = len(read_log(log, "").events)
    twice(log, "kind")
    assert len(read_log(log, "").events) == number - 1
    assert f"{log}:1: not an event" in read_log(log, "").faults
    kinds: list[str] = []
    Tail(log, lambda kind, data: kinds.append(kind)).read()
    assert len(kinds) == number - 1


def test_no_sample_of_telemetry_has_a_key_twice(tmp_path: Path) -> None:
    path = submit(tmp_path).attempt_folder(1, 0) / "telemetry.jsonl"
    number = len(read(path))
    twice(path, "time_s", before="\n")
    assert len(read(path)) == number - 1
    twice(path, "interval_s")
    with pytest.raises(FolderError, match="the key 'interval_s' twice"):
        read(path)
