"""The listing of a folder gives what a glob gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from vflops.errors import FolderError
from vflops.record.files.digest import Digest, file_digest
from vflops.record.files.folder_listing import matching_files, subfolders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("10", "9", ".hidden", "node-1.json"):
        (tmp_path / name).mkdir()
    for name in ("node-10.json", "node-2.json", ".node-3.json", "node-4.JSON", "node-4.json.tmp"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "linked").symlink_to(tmp_path / "9")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    return tmp_path


@pytest.mark.parametrize("pattern", ["node-*.json", "*.json", "*", "node-2.json"])
def test_files_are_those_of_a_glob(folder: Path, pattern: str) -> None:
    files = sorted(path for path in folder.glob(pattern) if path.is_symlink() or path.is_file())
    assert matching_files(folder, pattern) == files


def test_folders_are_those_of_a_glob(folder: Path) -> None:
    expected = [path for path in folder.glob("*/") if not path.is_symlink()]
    assert subfolders(folder) == sorted(expected)
    assert folder / "linked" not in subfolders(folder)  # it may lead out of a run folder


def test_what_is_not_a_folder_has_no_contents(folder: Path) -> None:
    assert matching_files(folder / "gone", "*") == subfolders(folder / "node-2.json") == []


@pytest.mark.parametrize("size", [0, 1, (1 << 20) + 3])
def test_a_digest_is_of_the_whole_file_or_its_beginning(tmp_path: Path, size: int) -> None:
    whole, begun = tmp_path / "whole", tmp_path / "begun"
    whole.write_bytes(bytes(size) + b"more")
    begun.write_bytes(bytes(size))
    assert file_digest(whole, size) == file_digest(begun) == Digest(file_digest(begun)[0], size)
    assert file_digest(whole) != file_digest(begun)


def test_a_folder_has_no_digest(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="it is not a regular file"):
        file_digest(tmp_path)
