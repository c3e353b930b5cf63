"""Files are complete or absent, whatever goes wrong while they are written."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from vflops.errors import RunFailed, UsageError
from vflops.record.files import atomic


def test_a_write_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "score.json"
    atomic.write_text(path, "a long first text")
    atomic.write_text(path, "short")
    assert path.read_text() == "short"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_keeps_the_old_file_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "score.json"
    atomic.write_text(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunFailed, match=r"cannot write .*score.json: No space left") as caught:
        atomic.write_text(path, "new")
    assert caught.value.exit_code == 3
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_really_full_file_system(small_disk: Path) -> None:
    path = small_disk / "big.json"
    with pytest.raises(RunFailed, match=r"\(8.39 MB needed, .*B free in ") as caught:
        atomic.write_bytes(path, bytes(8 << 20))
    assert str(small_disk) in caught.value.message and "another disk" in str(caught.value.hint)
    assert list(small_disk.iterdir()) == []


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EPERM])
def test_where_one_may_not_write_is_wrong_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UsageError) as caught:
        atomic.make_folder(tmp_path / "runs")
    assert caught.value.exit_code == 2
    assert "another folder" in str(caught.value.hint)


def test_a_really_read_only_file_system(small_disk: Path) -> None:
    (small_disk / "score.json").write_text("old")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(UsageError, match="Read-only file system"):
        atomic.write_text(small_disk / "score.json", "new")
    assert (small_disk / "score.json").read_text() == "old"


@pytest.mark.parametrize("name", ["x" * 300, "", "file/below"])
def test_an_impossible_name_is_one_clear_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="cannot write"):
        atomic.write_text(tmp_path / name, "text")


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(UsageError, match="cannot write"):
        atomic.make_folder(tmp_path / "runs" / "one")


def test_json_is_the_same_for_the_same_data_and_refuses_nan() -> None:
    assert atomic.json_text({"b": 1, "a": 2}) == atomic.json_text({"a": 2, "b": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        atomic.json_text({"a": float("nan")})


def test_the_bytes_of_json_are_fixed() -> None:
    data = {"b": [1, 2.5, 1e-07, None, True, {}, []], "a": {"é": 'say "x"\n'}, "10": 2**70}
    assert atomic.json_text(data) == (
        '{\n  "10": 1180591620717411303424,\n  "a": {\n    "é": "say \\"x\\"\\n"\n  },\n  "b": [\n'
        "    1,\n    2.5,\n    1e-07,\n    null,\n    true,\n    {},\n    []\n  ]\n}\n"
    )
