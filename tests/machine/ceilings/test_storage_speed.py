from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.micro_tasks import FakeClock, make_task
from vflops.machine.ceilings import scratch_file, storage_speed
from vflops.machine.ceilings.ceiling_plan import STORAGE_CASES
from vflops.machine.ceilings.scratch_file import PAGE, TILE, ScratchFile, buffer
from vflops.machine.system import filesystem

SHM = Path("/dev/shm")
in_memory = pytest.mark.skipif(
    filesystem.file_system(SHM) != "tmpfs", reason="/dev/shm is not a tmpfs here"
)


def _fail(code: int) -> Any:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("case", STORAGE_CASES)
def test_storage_is_measured_and_leaves_nothing(case: str, tmp_path: Path) -> None:
    measurement = storage_speed.measure(make_task("storage", case, folder=tmp_path, seconds=0.1))
    assert measurement.value is not None, measurement.reason
    assert measurement.value > 0
    assert measurement.unit == ("IO/s" if case == "random-read-4k" else "B/s")
    assert measurement.device.endswith("file system")
    assert {"block_bytes", "threads", "file_bytes", "access"} == measurement.setting.keys()
    assert list(tmp_path.iterdir()) == []


@in_memory
@pytest.mark.parametrize("case", STORAGE_CASES)
def test_a_file_system_in_memory_is_marked_cached(case: str) -> None:
    measurement = storage_speed.measure(make_task("storage", case, folder=SHM, seconds=0.1))
    assert measurement.value is not None
    assert (measurement.caveat or "").startswith("cached: tmpfs keeps files in main memory")


def _without_direct(monkeypatch: pytest.MonkeyPatch) -> None:
    right = os.open

    def refuse(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no O_DIRECT here")
        return right(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)


def test_without_direct_access_the_cache_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_direct(monkeypatch)
    measurement = storage_speed.measure(
        make_task("storage", "sequential-read", folder=tmp_path, seconds=0.1)
    )
    assert measurement.value is not None
    assert measurement.setting["access"] == "page cache dropped"
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_dropped_is_a_caveat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_direct(monkeypatch)
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: None)
    monkeypatch.setattr(storage_speed, "hidden_cache", lambda system: None)
    measurement = storage_speed.measure(
        make_task("storage", "sequential-read", folder=tmp_path, seconds=0.1)
    )
    assert measurement.value is not None
    assert (measurement.caveat or "").startswith(
        "cached: 100.0 % of the file stayed in the page cache"
    )


def test_no_space_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = os.statvfs(tmp_path)
    full = os.statvfs_result((right.f_bsize, right.f_frsize, right.f_blocks, 9, 5, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    measurement = storage_speed.measure(
        make_task("storage", "sequential-read", folder=tmp_path, seconds=0.1)
    )
    assert measurement.value is None
    assert (measurement.reason or "").startswith("no space in the run folder: ")


def test_a_small_disk_has_no_space(small_disk: Path) -> None:
    measurement = storage_speed.measure(
        make_task("storage", "sequential-write-fsync", folder=small_disk, seconds=0.1)
    )
    assert measurement.value is None
    assert "no space in the run folder" in (measurement.reason or "")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOSPC, "the file system of the run folder is full"),
        (errno.EDQUOT, "the file system of the run folder is full"),
        (errno.EIO, "cannot use the run folder: Input/output error"),
    ],
)
def test_a_write_that_fails_is_the_reason_and_leaves_nothing(
    code: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwritev", _fail(code))
    measurement = storage_speed.measure(
        make_task("storage", "sequential-write-fsync", folder=tmp_path, seconds=0.1)
    )
    assert (measurement.value, measurement.reason) == (None, reason)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_is_the_reason(tmp_path: Path) -> None:
    measurement = storage_speed.measure(
        make_task("storage", "sequential-read", folder=tmp_path / "gone", seconds=0.1)
    )
    assert measurement.reason == "cannot use the run folder: No such file or directory"


def test_content_that_changed_has_no_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScratchFile, "matches", lambda *_: False)
    measurement = storage_speed.measure(
        make_task("storage", "sequential-read", folder=tmp_path, seconds=0.1)
    )
    assert measurement.reason == "wrong result: the file does not hold what was written"


def test_an_interrupt_removes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "preadv", interrupt)
    with pytest.raises(KeyboardInterrupt):
        storage_speed.measure(make_task("storage", "sequential-read", folder=tmp_path, seconds=0.1))
    assert list(tmp_path.iterdir()) == []


def test_files_of_killed_processes_are_removed_and_others_kept(tmp_path: Path) -> None:
    with ScratchFile(tmp_path, seed=1):
        (mine,) = tmp_path.iterdir()
        prefix = mine.name.removesuffix(str(os.getpid()))
        dead = tmp_path / f"{prefix}999999999"
        other = tmp_path / "events.jsonl"
        dead.touch()
        other.touch()
        scratch_file.remove_leftovers(tmp_path)
        assert set(tmp_path.iterdir()) == {mine, other}
    assert list(tmp_path.iterdir()) == [other]


def test_a_scratch_file_contains_what_was_written_at_every_offset(tmp_path: Path) -> None:
    with ScratchFile(tmp_path, seed=1) as file:
        file.write(0, 3 * TILE)
        file.sync()
        assert file.size_bytes == 3 * TILE
        page = buffer(PAGE)
        file.read(page, TILE + 5 * PAGE)
        assert file.matches(page, TILE + 5 * PAGE)
        assert not file.matches(page, TILE + 6 * PAGE)
        with pytest.raises(OSError, match="shorter than"):
            file.read(page, 3 * TILE)


def test_pages_in_the_cache_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _without_direct(monkeypatch)
    with ScratchFile(tmp_path, seed=1) as file:
        file.write(0, TILE)
        assert file.cached_share() == 1.0


def test_without_time_nothing_is_written(tmp_path: Path) -> None:
    clock = FakeClock(step_s=1.0)
    task = make_task("storage", "sequential-read", folder=tmp_path, seconds=1.0, clock=clock)
    assert storage_speed.measure(task).reason == "time budget of 1 s used up; raise micro.budget_s"


@pytest.mark.parametrize(
    ("system", "word"), [("zfs", "its own cache"), ("nfs4", "servers"), ("fuse.sshfs", "servers")]
)
def test_caches_that_cannot_be_bypassed_are_named(system: str, word: str) -> None:
    assert word in (filesystem.hidden_cache(system) or "")
    assert filesystem.hidden_cache("ext4") is None
