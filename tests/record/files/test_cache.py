"""The cache of users who cannot write to it, and where torch's compilers keep their results."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from vflops.data.cached_data import cached_data
from vflops.errors import RunFailed, UsageError, VflopsError
from vflops.record.files import atomic
from vflops.record.files.cache import cache_folder, cached_folder, keep_compiled_kernels

VARIABLES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


@pytest.fixture(autouse=True)
def _own_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path / "cache"))
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is restored after the test
        monkeypatch.delenv(name)


def test_compilers_keep_their_results_in_the_cache(tmp_path: Path) -> None:
    keep_compiled_kernels()
    folders = [Path(os.environ[name]) for name in VARIABLES]
    assert {folder.parent for folder in folders} == {tmp_path / "cache" / "kernels"}
    assert len(set(folders)) == 2


def test_the_users_choice_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "/elsewhere")
    keep_compiled_kernels()
    assert os.environ["TRITON_CACHE_DIR"] == "/elsewhere"


def test_a_cache_that_cannot_be_written_to_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path / "file"))
    keep_compiled_kernels()
    assert not set(VARIABLES) & os.environ.keys()


UNWRITABLE = Path("/sys")
"""Even root cannot create a file there."""


def test_a_home_that_cannot_be_written_to_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("VFLOPS_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(UNWRITABLE))
    with pytest.raises(VflopsError, match=f"cannot write {UNWRITABLE}") as error:
        cached_folder("data", Path.mkdir)
    assert "export VFLOPS_CACHE=" in str(error.value.hint)


def test_a_cache_that_cannot_be_written_to_serves_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path))
    cached_folder("data", Path.mkdir)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write to any folder
    assert cached_folder("data", Path.mkdir) == cache_folder() / "data"
    with pytest.raises(UsageError, match="cannot write to the cache") as error:
        cached_folder("other", Path.mkdir)
    assert "export VFLOPS_CACHE=" in str(error.value.hint)


def test_a_full_cache_says_how_to_choose_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path))

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(RunFailed, match=f"No space left .* free in {tmp_path}") as error:
        cached_folder("data", full)
    assert "export VFLOPS_CACHE=" in str(error.value.hint)

    def full_shard(path: Path) -> None:
        raise atomic.cannot_write(path, OSError(errno.ENOSPC, "No space left on device"))

    with pytest.raises(RunFailed) as error:
        cached_data("data", full_shard)
    assert "export VFLOPS_CACHE=" in str(error.value.hint)


def test_a_cache_below_a_folder_that_is_not_readable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path))

    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(UsageError, match=r"cannot write .*: Permission denied") as error:
        cached_folder("data", Path.mkdir)
    assert "export VFLOPS_CACHE=" in str(error.value.hint)
