"""A cache on disk for data that can be regenerated; each entry is complete or absent."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import shlex
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vflops.errors import UsageError, VflopsError
from vflops.record.files import atomic

_STALE_AFTER_S = 24 * 3600.0
_HINT = "name a folder with space that you can write to: export VFLOPS_CACHE=FOLDER"


def cache_folder() -> Path:
    """Return ``$VFLOPS_CACHE``, or ``~/.cache/vflops``, whoever can write to it."""
    path = os.environ.get("VFLOPS_CACHE")
    return Path(path) if path else Path.home() / ".cache" / "vflops"


def trusted_cache() -> Path:
    """Return the cache; raise ``UsageError`` if other users, except for root, can write to it.

    They could replace compiled kernels, which run as this user.
    """
    folder = cache_folder()
    fault, hint = _write_access(folder)
    if fault:
        raise UsageError(f"the cache {folder} is not used: {fault}", hint=hint)
    return folder


def _write_access(folder: Path) -> tuple[str | None, str]:
    """Return which others can write to a folder, None if none can, and what to do about it."""
    own = "name a folder of your own: export VFLOPS_CACHE=FOLDER"
    try:
        status = folder.stat()
    except OSError:  # it is missing, or whoever needs it reports why it cannot be used
        return None, own
    if status.st_uid not in (0, os.geteuid()):
        return f"it belongs to user {_user(status.st_uid)}", own
    others = "all users" if status.st_mode & stat.S_IWOTH else None
    if others is None and status.st_mode & stat.S_IWGRP and not _is_users_own(status.st_gid):
        others = f"group {status.st_gid}"
    if others and status.st_uid == os.geteuid():
        return f"{others} can write to it", f"chmod go-w {shlex.quote(str(folder))}, or {own}"
    return f"{others} can write to it" if others else None, own


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _is_users_own(gid: int) -> bool:
    """Whether a group is the one that has the user's name, and nobody else in it."""
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == _user(os.geteuid()) and set(group.gr_mem) <= {group.gr_name}


def cache_entry(name: str) -> Path:
    """Return the path of an entry; raise ``VflopsError`` if it is missing and cannot be created."""
    path = trusted_cache() / name
    with cache_hint():
        try:
            if path.exists():
                return path
        except OSError as error:  # a folder above it is not readable
            raise atomic.cannot_write(path.parent, error) from error
        _make_cache(path.parent)
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"cannot write to the cache {path.parent}", hint=_HINT)
    return path


def _make_cache(folder: Path) -> None:
    """Create the cache, which no other user can write to, and a folder in it."""
    with suppress(OSError):  # the line below says what is wrong
        cache_folder().mkdir(mode=0o700, parents=True)
    atomic.make_folder(folder)


@contextmanager
def cache_hint() -> Iterator[None]:
    """Let errors of files that cannot be written say how to choose another cache."""
    try:
        yield
    except VflopsError as error:
        if error.message.startswith("cannot write"):
            error.hint = _HINT
        raise


_COMPILERS = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
"""The variables that tell each compiler where to keep its results, and their folders here."""


def keep_compiled_kernels() -> None:
    """Have torch's compilers keep their results in the cache, for all workloads and later runs.

    It does nothing where the cache cannot be written to, or others can, or the user has chosen
    another folder.
    Call it before torch compiles anything; child processes inherit it.
    """
    with suppress(VflopsError):
        folder = trusted_cache() / "kernels"
        _make_cache(folder)
        if os.access(folder, os.W_OK) and _write_access(folder)[0] is None:
            for variable, name in _COMPILERS.items():
                os.environ.setdefault(variable, str(folder / name))


def cached_folder(name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder ``name`` in the cache, after creating it with ``make`` if it is missing.

    Several processes may create it at the same time: each writes to a temporary folder, the first
    to finish renames its folder, and the others use that folder.
    """
    folder = cache_entry(name)
    if folder.is_dir():
        return folder
    _remove_stale(folder)
    temporary = folder.with_name(f".{name}-{os.getpid()}-{os.urandom(3).hex()}")
    try:
        make(temporary)
        temporary.rename(folder)
        atomic.sync_folder(folder.parent)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            with cache_hint():
                raise atomic.cannot_write(folder, error) from error
    finally:
        for leftover in folder.parent.glob(f"{temporary.name}*"):
            shutil.rmtree(leftover, ignore_errors=True)
    return folder


def _remove_stale(folder: Path) -> None:
    """Remove temporary folders that killed processes left behind more than a day ago."""
    for leftover in folder.parent.glob(f".{folder.name}-*"):
        with suppress(OSError):
            if time.time() - leftover.stat().st_mtime > _STALE_AFTER_S:
                shutil.rmtree(leftover, ignore_errors=True)
