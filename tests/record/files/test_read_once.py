"""During a block, a folder and its files are what they were when they were first read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vflops.errors import FolderError
from vflops.record.files import read_once as module
from vflops.record.files.digest import file_digest
from vflops.record.files.document import read_json
from vflops.record.files.folder_listing import matching_files, subfolders
from vflops.record.files.read_once import (
    folder_entries,
    is_file,
    read_bytes,
    read_once,
    small_file,
)


def test_hash_and_content_come_from_one_read_during_a_block(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"a": 1}')
    before = file_digest(file)
    with read_once(tmp_path):
        assert file_digest(file) == before
        assert file_digest(file, 3).size_bytes == 3
        file.write_text('{"a": 22}')
        assert (file_digest(file), read_json(file)) == (before, {"a": 1})
    assert file_digest(file) != before
    assert read_json(file) == {"a": 22}


def test_folders_are_listed_once_during_a_block(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "1.json").touch()
    for _ in range(2):  # a new block reads again
        with read_once(tmp_path):
            names = [entry.name for entry in folder_entries(tmp_path)]
            files, folders = matching_files(tmp_path / "b", "*.json"), subfolders(tmp_path)
            added = tmp_path / f"c{len(names)}"
            added.mkdir()
            (tmp_path / "b" / f"{added.name}.json").touch()
            assert [entry.name for entry in folder_entries(tmp_path)] == names
            assert matching_files(tmp_path / "b", "*.json") == files
            assert matching_files(tmp_path / "b", "1*") == [tmp_path / "b" / "1.json"]
            assert subfolders(tmp_path) == folders
            assert not is_file(tmp_path / "b" / f"{added.name}.json")
    assert [path.name for path in subfolders(tmp_path)] == ["b", "c1", "c2"]
    assert names == ["b", "c1"]


def test_a_missing_folder_stays_missing_and_a_missing_file_is_an_error(tmp_path: Path) -> None:
    missing = tmp_path / "nodes"
    with read_once(tmp_path):
        for _ in range(2):
            with pytest.raises(FileNotFoundError, match="nodes"):
                folder_entries(missing)
            assert matching_files(missing, "*.json") == []
            missing.mkdir(exist_ok=True)
        with pytest.raises(FileNotFoundError, match=r"a\.json"):
            read_bytes(tmp_path / "a.json")


def test_what_is_a_file_is_the_same_as_outside_of_a_block(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    names = ("file", "folder", "link", "broken", "loop", "pipe", "missing", "folder/x", "file/x")
    outside = [is_file(tmp_path / name) for name in names]
    with read_once(tmp_path):
        assert [is_file(tmp_path / name) for name in names] == outside
    assert outside == [name in ("file", "link") for name in names]


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with read_once(tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            small_file(tmp_path / "pipe")
        with pytest.raises(FolderError, match="not a regular file"):
            file_digest(tmp_path / "pipe")


def test_large_files_and_other_folders_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_FILE_BYTES", 4)
    monkeypatch.setattr(module, "_MAX_TOTAL_BYTES", 6)
    run, beside = tmp_path / "run", tmp_path / "run-2"
    for folder in (run, beside):
        folder.mkdir()
    for name, data in (("large", b"12345"), ("a", b"1234"), ("b", b"12"), ("c", b"1")):
        (run / name).write_bytes(data)
    (beside / "a").write_bytes(b"1")
    with read_once(run):
        kept = {name: small_file(run / name) for name in ("large", "a", "b", "c")}
        assert kept == {"large": None, "a": b"1234", "b": b"12", "c": None}
        assert small_file(beside / "a") is None
        assert [read_bytes(run / "large"), read_bytes(run / "c")] == [b"12345", b"1"]
        assert read_bytes(beside / "a") == b"1"
        assert file_digest(run / "large").size_bytes == 5
