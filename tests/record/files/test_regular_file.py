"""Only regular files are read."""

from __future__ import annotations

import ast
import os
import socket
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vflops.record.files.lock import is_locked
from vflops.record.files.regular_file import SPARE_BYTES, open_regular, read_regular

OWN_FILES = {
    "publish/pages/page.py",  # the package's own templates and its cache
    "publish/ranking/ranking_pages.py",
    "publish/ranking/entry_store.py",  # the site that it writes
    "publish/ranking/static_site.py",
    "publish/ranking/judge.py",  # the list of signers that the user gives
    "publish/evidence/sign_run.py",  # the user's own key
    "publish/evidence/ssh_signature.py",  # what ssh-keygen has just written
    "publish/evidence/rederive.py",  # a page that it has just written
    "record/log/boot.py",  # /proc
    "record/installed_package.py",  # the package itself
    "studies/accept/accept_page.py",  # a page that it has just printed
    "workloads/automl/proposer_process.py",
}
"""Modules that also read files which no stranger wrote."""
ROOMS = ("record", "results", "publish", "studies", "api", "workloads/automl")
READING = {"read_text", "read_bytes"}


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder", "loop", "missing"])
def test_anything_else_is_an_error_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.path.relpath(path))
    elif kind == "device":
        path = Path("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to("x")
    for read in (open_regular, read_regular):
        with pytest.raises(OSError) as raised:
            read(path)
        assert raised.value.strerror


def test_a_large_file_is_an_error_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 25)
    with pytest.raises(OSError, match="larger than 1,000 bytes"):
        read_regular(path, max_bytes=1000)
    path.write_bytes(bytes(1000))
    assert read_regular(path, max_bytes=1000) == bytes(1000)
    path.write_bytes(b"")
    assert read_regular(path) == b""


def test_links_are_followed_unless_asked_otherwise(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").symlink_to("a")
    assert read_regular(tmp_path / "b") == b"1"
    with pytest.raises(OSError, match="it is a link, not a file"):
        read_regular(tmp_path / "b", follow_links=False)


def test_a_pipe_in_place_of_a_lock_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    assert not is_locked(tmp_path / ".lock")


def test_readers_of_run_folders_use_no_other_way_to_read() -> None:
    source = ROOT / "src" / "vflops"
    paths = [path for room in ROOMS for path in (source / room).rglob("*.py")]
    assert len(paths) > 100
    others = {
        str(path.relative_to(source))
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and _opens(node)
    }
    assert others == OWN_FILES


def _opens(call: ast.Call) -> bool:
    """Whether a call reads a file by its path."""
    modes = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    mode = next((value for value in modes if isinstance(value, str)), "")
    if isinstance(call.func, ast.Name):
        return call.func.id == "open" and mode[:1] not in tuple("wxa")
    if not isinstance(call.func, ast.Attribute):
        return False
    return call.func.attr in READING or (call.func.attr == "open" and mode.startswith("r"))


def test_a_sparse_file_is_refused_and_a_stored_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(20 << 30)
    for read in (open_regular, read_regular):
        with pytest.raises(OSError, match="it is sparse: most of its 21,474,836,480 bytes"):
            read(path)
    path.write_bytes(b"1")
    os.truncate(path, SPARE_BYTES)
    with open_regular(path) as file:
        assert file.read(1) == b"1"
    with path.open("r+b") as file:
        file.write(b"1" * (1 << 20))  # a twohundredth of the rest
    os.truncate(path, SPARE_BYTES + (200 << 20))
    with open_regular(path) as file:
        assert file.read(1) == b"1"
