from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.evidence_runs import concluded
from vflops.errors import FolderError, UsageError
from vflops.publish.evidence.archive import archive, pack
from vflops.publish.evidence.archive_limits import LIMITS, ArchiveRefused
from vflops.publish.evidence.extract import extract
from vflops.publish.evidence.verify import verify
from vflops.record.folder import RunFolder
from vflops.results.evidence.evidence_names import listing


def test_the_same_folder_gives_the_same_bytes(run_folder: RunFolder, tmp_path: Path) -> None:
    """Elsewhere, under another name, in another order, with other times, modes and leftovers."""
    concluded(run_folder)
    first = archive(run_folder)
    assert first == run_folder.path.parent / f"{run_folder.record.id}.tar.bz2"
    moved = tmp_path / "elsewhere" / "renamed"
    for name in sorted(listing(run_folder.path).files, reverse=True):
        (moved / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run_folder.path / name, moved / name)
        (moved / name).chmod(0o600)
        os.utime(moved / name, (1e9, 1e9))
    shutil.copyfile(run_folder.path / "manifest.json", moved / "manifest.json")
    for leftover in (".lock", "jobs/0/checkpoint/step-1.state", "weights/w.state"):
        (moved / leftover).parent.mkdir(exist_ok=True)
        (moved / leftover).write_text("x")
    second = archive(RunFolder.open(moved), tmp_path / "second.tar.bz2")
    assert first.read_bytes() == second.read_bytes()


def test_the_bytes_are_those_of_every_machine(tmp_path: Path) -> None:
    """A folder of fixed content has a known hash: another is a break for all that was published."""
    folder = tmp_path / "run"
    (folder / "jobs" / "0" / "0").mkdir(parents=True)
    (folder / "run.json").write_text(RUN)
    (folder / "jobs" / "0" / "0" / "events.jsonl").write_text("line\n" * 1000)
    path = tmp_path / "run.tar.bz2"
    pack(RunFolder.open(folder), path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == (
        "b6d5a4e688df553bb0f5c11d370ea4011848e7490b6b4843344ccab0235102d0"
    )


RUN = """{
  "created_utc": "2026-01-01T00:00:00+00:00",
  "id": "20260101T000000Z-suite-000000",
  "schema": "vflops.run/1",
  "settings": {"profile": "tiny"},
  "versions": {"vflops": "0"},
  "workload": "suite"
}
"""


def test_an_archive_comes_back_as_it_was(run_folder: RunFolder, tmp_path: Path) -> None:
    concluded(run_folder)
    path = archive(run_folder, tmp_path)
    made = extract(path, tmp_path / "into")
    assert made == tmp_path / "into" / run_folder.record.id
    for name in (*listing(run_folder.path).files, "manifest.json"):
        assert (made / name).read_bytes() == (run_folder.path / name).read_bytes()
    assert listing(made) == listing(run_folder.path)
    assert verify(made).intact and verify(path).intact
    with pytest.raises(UsageError, match="exists"):
        extract(path, tmp_path / "into")
    assert [each.name for each in (tmp_path / "into").iterdir()] == [made.name]


def test_no_other_file_is_overwritten_and_no_folder_is_made(
    run_folder: RunFolder, tmp_path: Path
) -> None:
    concluded(run_folder)
    path = archive(run_folder, tmp_path)
    before = path.read_bytes()
    assert archive(run_folder, path).read_bytes() == before  # the same once more
    path.write_bytes(b"an archive of another run")
    with pytest.raises(UsageError, match="exists and is not this archive"):
        archive(run_folder, path)
    assert path.read_bytes() == b"an archive of another run"
    with pytest.raises(UsageError, match="cannot write"):
        archive(run_folder, tmp_path / "no" / "folder.tar.bz2")
    assert not (tmp_path / "no").exists()
    assert not list(tmp_path.glob(".*.tmp"))


def test_other_programs_read_it_and_theirs_is_read(run_folder: RunFolder, tmp_path: Path) -> None:
    """GNU tar unpacks it; what GNU tar packs, with its folders, is read here."""
    concluded(run_folder)
    subprocess.run(["tar", "xjf", archive(run_folder), "-C", tmp_path], check=True)
    assert verify(tmp_path / run_folder.record.id).intact
    theirs = tmp_path / "theirs.tar.bz2"
    place = ["-C", str(run_folder.path.parent), run_folder.record.id]
    subprocess.run(["tar", "cjf", str(theirs), "--format=gnu", *place], check=True)
    assert verify(theirs).intact


def test_a_run_that_has_not_ended_is_neither_packed_nor_called_altered(
    run_folder: RunFolder, tmp_path: Path
) -> None:
    with run_folder.start_attempt(job=0) as events:
        events.write("start", workload="suite")
    found = verify(run_folder.path)
    assert (found.alterations, found.intact, found.goes_on) == ((), False, False)
    assert str(found.unconcluded).startswith("it stopped after 'start'")
    with pytest.raises(UsageError, match="cannot be packed: it is not complete") as error:
        archive(run_folder, tmp_path)
    assert "vflops resume" in str(error.value.hint)
    with run_folder.in_use(), pytest.raises(UsageError, match="is in progress") as error:
        archive(run_folder, tmp_path)
    assert error.value.hint == "wait until it ends"
    assert not list(tmp_path.glob("*.bz2"))


def test_an_altered_run_is_not_packed(run_folder: RunFolder, tmp_path: Path) -> None:
    concluded(run_folder)
    (run_folder.path / "extra").write_text("x")
    with pytest.raises(UsageError, match=r"cannot be packed: .*: extra: added") as error:
        archive(run_folder, tmp_path)
    assert "vflops verify" in str(error.value.hint)


def test_what_no_reader_would_take_is_not_packed(
    run_folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="inside the run folder"):
        archive(run_folder, run_folder.path / "graphs")
    odd = run_folder.path / "graphs" / "a b.json"
    odd.write_text("{}")
    with pytest.raises(FolderError, match="a name with odd characters"):
        archive(run_folder)
    odd.unlink()
    odd.with_name("link.json").symlink_to("sample.json")
    with pytest.raises(FolderError, match="a link, not a file"):
        archive(run_folder)
    odd.with_name("link.json").unlink()
    large = run_folder.path / "large.bin"
    with large.open("wb") as file:
        file.truncate(LIMITS.size_bytes + 1)
    with pytest.raises(ArchiveRefused, match="more than 8192 MiB"):
        archive(run_folder)
    large.unlink()
    assert not list(run_folder.path.parent.glob("*.bz2"))
    assert not list(run_folder.path.parent.glob(".*"))
