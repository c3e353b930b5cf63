"""The cache of users who cannot write to it, and where torch's compilers keep their results."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from pathlib import Path

import pytest

from vflops.data.cached_data import cached_data
from vflops.errors import RunFailed, UsageError, VflopsError
from vflops.record.files import atomic
from vflops.record.files.cache import (
    cache_folder,
    cached_folder,
    keep_compiled_kernels,
    trusted_cache,
)
from vflops.run.validate import cache_warnings

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


def test_a_new_cache_is_the_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        cached_folder("data", Path.mkdir)
    finally:
        os.umask(before)
    assert stat.S_IMODE(cache_folder().stat().st_mode) == 0o700
    assert trusted_cache() == tmp_path / "cache"


@pytest.mark.parametrize(
    ("mode", "owner", "group", "why"),
    [
        (0o777, None, None, "all users can write to it"),
        (0o1777, None, None, "all users can write to it"),
        (0o775, None, 54321, "group 54321 can write to it"),
        (0o755, 54321, None, "it belongs to user 54321"),
        (0o775, 0, 54321, "group 54321 can write to it"),
    ],
)
def test_a_cache_that_others_can_write_to_is_not_used(
    monkeypatch: pytest.MonkeyPatch, mode: int, owner: int | None, group: int | None, why: str
) -> None:
    folder = cache_folder()
    folder.mkdir()
    _present(monkeypatch, folder, mode, owner, group)
    for use in (trusted_cache, lambda: cached_folder("data", Path.mkdir)):
        with pytest.raises(UsageError, match=why) as error:
            use()
        assert "export VFLOPS_CACHE=" in str(error.value.hint)
        assert ("chmod go-w" in str(error.value.hint)) is (owner in (None, os.geteuid()))
    keep_compiled_kernels()
    assert not set(VARIABLES) & os.environ.keys()
    assert why in cache_warnings()[0]


@pytest.mark.parametrize(("mode", "owner", "group"), [(0o755, 0, 0), (0o775, None, "own")])
def test_a_cache_of_the_site_and_one_of_the_users_own_group_are_used(
    monkeypatch: pytest.MonkeyPatch, mode: int, owner: int | None, group: int | str
) -> None:
    folder = cache_folder()
    folder.mkdir()
    user = pwd.struct_passwd(("me", "x", os.geteuid(), 54321, "", "/", "sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: user)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(("me", "x", gid, [])))
    _present(monkeypatch, folder, mode, owner, 54321 if group == "own" else 0)
    assert trusted_cache() == folder
    assert not cache_warnings()


def _present(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    mode: int,
    owner: int | None,
    group: int | None,
) -> None:
    """Let a folder look as if it had this mode, owner and group, which only root can change."""
    real = Path.stat

    def status(path: Path, **options: bool) -> os.stat_result:
        found = real(path, **options)
        if path != folder:
            return found
        fields = list(found)
        fields[0] = stat.S_IFDIR | mode
        fields[4] = fields[4] if owner is None else owner
        fields[5] = fields[5] if group is None else group
        return os.stat_result(fields)

    monkeypatch.setattr(Path, "stat", status)
