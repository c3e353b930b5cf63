"""Locks on folders, and processes that only look at them."""

from __future__ import annotations

import fcntl
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from vflops.errors import DiskFull, UsageError
from vflops.record.files.lock import is_locked, locked


def test_a_lock_is_held_as_long_as_its_block_lasts(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    assert not is_locked(lock)
    with locked(lock, tmp_path):
        assert is_locked(lock)
        with pytest.raises(UsageError, match="is in use by process"), locked(lock, tmp_path):
            pass
    assert not is_locked(lock)


def test_looking_at_a_lock_does_not_prevent_others_from_taking_it(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    lock.touch()
    with lock.open() as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        threading.Timer(0.04, lambda: fcntl.flock(looked_at, fcntl.LOCK_UN)).start()
        with locked(lock, tmp_path):
            assert is_locked(lock)
        time.sleep(0.05)


def test_a_full_disk_is_an_error_with_a_remedy(small_disk: Path) -> None:
    with (small_disk / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
        while True:
            ballast.write(bytes(4096))
    with (
        pytest.raises(DiskFull, match="No space left") as full,
        locked(small_disk / "l", small_disk),
    ):
        pass
    assert "free some space" in str(full.value.hint)
