"""What strangers send: each kind of attack is refused, and nothing of it is left."""

from __future__ import annotations

import bz2
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.evidence_runs import Entry, run_entry, tar_bytes, write_archive
from vflops.config.profiles import tiny
from vflops.errors import UsageError, VflopsError
from vflops.publish.evidence.archive_limits import ArchiveRefused, Limits
from vflops.publish.evidence.extract import extract
from vflops.record.folder import RunFolder


def refused(path: Path, words: str, limits: Limits | None = None) -> None:
    into = path.parent / "into"
    with pytest.raises(ArchiveRefused, match=words) as error:
        extract(path, into, limits or Limits())
    assert error.value.exit_code == 2
    assert list(into.iterdir()) == []


ATTACKS: dict[str, tuple[Entry, str]] = {
    "absolute": (Entry("/tmp/evil"), "an absolute path"),
    "out": (Entry("RUN/../../evil"), "leads out of the folder"),
    "out at once": (Entry("../evil"), "leads out of the folder"),
    "dot": (Entry("RUN/./evil"), "not a plain path"),
    "empty part": (Entry("RUN//evil"), "not a plain path"),
    "deep": (Entry("RUN" + "/d" * 20), "not a plain path"),
    "symbolic link": (Entry("RUN/a", type=tarfile.SYMTYPE, link="/etc"), "is a link"),
    "hard link": (Entry("RUN/a", type=tarfile.LNKTYPE, link="RUN/run.json"), "is a link"),
    "character device": (Entry("RUN/a", type=tarfile.CHRTYPE), "is a device"),
    "block device": (Entry("RUN/a", type=tarfile.BLKTYPE), "is a device"),
    "pipe": (Entry("RUN/a", type=tarfile.FIFOTYPE), "is a pipe"),
    "sparse": (Entry("RUN/a", type=tarfile.GNUTYPE_SPARSE), "an entry of type"),
    "renaming header": (Entry("x", b"20 path=../../evil\n", type=tarfile.XHDTYPE), "of type"),
    "long name": (Entry("x", b"/etc/evil\0", type=tarfile.GNUTYPE_LONGNAME), "of type"),
    "the same again": (Entry("RUN/run.json"), "is a duplicate"),
    "a folder by case": (Entry("RUN/JOBS/x"), "/jobs' are the same on some file systems"),
    "by case": (Entry("RUN/GRAPHS.json"), "is a duplicate"),
    "by width": (Entry("RUN/\uff47raphs.json"), "is a duplicate"),
    "a file as a folder": (Entry("RUN/graphs.json/x"), "is a duplicate"),
    "a folder as a file": (Entry("RUN/jobs"), "is a duplicate"),
    "a second folder": (Entry("other/run.json"), "is not in the folder of the run"),
    "no folder": (Entry("evil"), "is not in the folder of the run"),
    "a run inside": (Entry("RUN/jobs/run.json"), "belongs to a second run"),
    "a run by case": (Entry("RUN/Run.json"), "belongs to a second run"),
    "space": (Entry("RUN/a b"), "odd characters"),
    "back slash": (Entry("RUN/..\\evil"), "odd characters"),
    "escape": (Entry("RUN/\x1b[2J"), "odd characters"),
    "right to left": (Entry("RUN/\u202etxt.exe"), "odd characters"),
    "new line": (Entry("RUN/a\nb"), "odd characters"),
    "colon": (Entry("RUN/C:x"), "odd characters"),
    "hidden": (Entry("RUN/.bashrc"), "odd characters"),
    "option": (Entry("RUN/-rf"), "odd characters"),
    "not Unicode": (Entry("RUN/\udcff"), "not a tar"),
    "a long part": (Entry("RUN/" + "é" * 50 + "x/y"), "more than 100 bytes"),
    "checkpoint": (Entry("RUN/jobs/1/checkpoint/step.pt", b"pickle"), "nor a state for audits"),
    "weights": (Entry("RUN/weights/a.pt", b"pickle"), "nor a state for audits"),
    "weights by case": (Entry("RUN/Weights/a.pt", b"pickle"), "nor a state for audits"),
    "a checkpoint by case": (Entry("RUN/jobs/1/CheckPoint/a.pt", b"x"), "nor a state for audits"),
    "a dot at the end": (Entry("RUN/a."), "is not portable"),
    "a device of Windows": (Entry("RUN/jobs/Con"), "is not portable"),
    "a device with an end": (Entry("RUN/nul.json"), "is not portable"),
    "a size that is a lie": (Entry("RUN/a", b"x", size=9 << 30), "more than 8192 MiB"),
    "a negative size": (Entry("RUN/a", b"x", size=-512), "has the size -512"),
    "a folder with bytes": (Entry("RUN/a", type=tarfile.DIRTYPE, size=512), "has the size 512"),
    "cut off": (Entry("RUN/a", b"x" * 600, size=5000), "is truncated"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_and_leaves_nothing(run_folder: RunFolder, attack: str) -> None:
    bad, words = ATTACKS[attack]
    name = run_folder.record.id
    bad = replace(bad, name=bad.name.replace("RUN", name, 1))
    good = [run_entry(run_folder), Entry(f"{name}/graphs.json"), Entry(f"{name}/jobs/0/job.json")]
    path = write_archive(run_folder.path.parent / "attack.tar.bz2", *good, bad)
    refused(path, words)


def test_the_same_entries_without_an_attack_are_taken(run_folder: RunFolder) -> None:
    name = run_folder.record.id
    entries = [run_entry(run_folder), Entry(f"{name}/graphs.json"), Entry(f"{name}/graphs/é.json")]
    path = write_archive(run_folder.path.parent / "good.tar.bz2", *entries)
    assert extract(path, run_folder.path.parent / "into").name == name


def test_a_bomb_is_stopped_while_it_is_unpacked(run_folder: RunFolder) -> None:
    name = run_folder.record.id
    small = Limits(size_bytes=1 << 30, ratio=10, spare_bytes=1 << 20)
    bomb = write_archive(
        run_folder.path.parent / "bomb.tar.bz2",
        run_entry(run_folder),
        Entry(f"{name}/zeros.bin", bytes(8 << 20)),
    )
    assert bomb.stat().st_size < 2000
    refused(bomb, "extracts to more than 1 MiB plus 10 times", small)
    after = write_archive(bomb, run_entry(run_folder), end=bytes(8 << 20))
    refused(after, "extracts to more than 1 MiB plus 10 times", small)
    assert Limits().spare_bytes + Limits().ratio * 2000 < 1 << 27  # no gigabytes by default


def test_too_many_files_or_bytes(run_folder: RunFolder) -> None:
    name = run_folder.record.id
    many = [Entry(f"{name}/{number}.json", b"x" * 2000) for number in range(20)]
    path = write_archive(run_folder.path.parent / "many.tar.bz2", run_entry(run_folder), *many)
    refused(path, "more than 10 files", Limits(files=10))
    refused(path, "more than 0 MiB", Limits(size_bytes=30_000))
    folders = [Entry(f"{name}/{number}", type=tarfile.DIRTYPE) for number in range(20)]
    write_archive(path, run_entry(run_folder), *folders)
    refused(path, "more than 10 files", Limits(files=10))


def test_bytes_that_are_no_archive(run_folder: RunFolder, tmp_path: Path) -> None:
    path = tmp_path / "x.tar.bz2"
    whole = tar_bytes(run_entry(run_folder))
    damaged = bytearray(bz2.compress(whole))
    damaged[len(damaged) // 2] ^= 1
    for content, words in {
        b"": "is truncated",
        b"PK\x03\x04": "not a bzip2 file",
        bytes(damaged): "damaged",
        bz2.compress(whole)[:-20]: "is truncated",
        bz2.compress(b"not a tar" * 100): "not a tar",
        bz2.compress(bytes(1024)): "no run.json",
        bz2.compress(whole) + b"more": "holds data after the end of its bzip2 stream",
        bz2.compress(whole) + bz2.compress(whole): "holds data after the end of its bzip2 stream",
        bz2.compress(whole + whole): "data follows its end",
    }.items():
        path.write_bytes(content)
        refused(path, words)
    with pytest.raises(UsageError, match="does not exist"):
        extract(tmp_path / "absent", tmp_path / "into")
    with pytest.raises(UsageError, match="is not a file"):
        extract(tmp_path, tmp_path / "into")


def test_a_run_json_that_is_none_or_of_another_run(run_folder: RunFolder, tmp_path: Path) -> None:
    path = tmp_path / "x.tar.bz2"
    own = run_entry(run_folder).data
    refused(write_archive(path, Entry("a/run.json", own)), "the folder a, but the run in it is")
    refused(write_archive(path, Entry("a/run.json", b"{}")), "is not a vflops.run file")
    refused(write_archive(path, Entry("a/run.json", b"[" * 100_000)), "is not JSON")
    huge = Entry("a/run.json", own + b" " * (17 << 20))
    refused(write_archive(path, huge), "larger than 16 MiB")


PARTS = ["..", ".", "", "a", "A", "jobs", "run.json", "0", "é", "\\", "c:", "~", "RUN", "x" * 90]
NAMES = st.lists(st.sampled_from(PARTS), min_size=1, max_size=5).map("/".join)
TYPES = st.sampled_from([bytes([kind]) for kind in b"001234567LKSxgV\0"])
ENTRIES = st.builds(
    Entry,
    name=st.one_of(NAMES, NAMES.map(lambda name: f"RUN/{name}"), st.text(max_size=30)),
    data=st.binary(max_size=20),
    type=TYPES,
    link=st.sampled_from(["", "..", "/tmp", "RUN/run.json"]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    entries=st.lists(ENTRIES, max_size=6),
    first=st.booleans(),
    flips=st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 255)), max_size=3),
    packed=st.booleans(),
)
def test_nothing_is_ever_written_outside(
    entries: list[Entry], first: bool, flips: list[tuple[int, int]], packed: bool
) -> None:
    """Whatever the names, kinds, links and damaged bytes: one run folder, or nothing."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        folder = RunFolder.create(root / "runs", "suite", tiny())
        name = folder.record.id
        own = [
            replace(
                entry, name=entry.name.replace("RUN", name), link=entry.link.replace("RUN", name)
            )
            for entry in entries
        ]
        whole = bytearray(_tar([run_entry(folder), *own] if first else [*own, run_entry(folder)]))
        if packed:
            whole = bytearray(bz2.compress(whole))
        for at, value in flips:
            whole[at % len(whole)] ^= value
        file = root / "file.tar.bz2"
        file.write_bytes(whole if packed else bz2.compress(whole))
        before = _all(root)
        try:
            made = extract(file, root / "in" / "to")
        except VflopsError:
            made = None
        inside = {root / "in", root / "in" / "to", *_all(root / "in" / "to")}
        assert _all(root) - inside == before
        assert list((root / "in" / "to").iterdir()) == ([] if made is None else [made])
        assert not any(path.is_symlink() for path in _all(root))


def _tar(entries: list[Entry]) -> bytes:
    """A tar of the entries whose names a header can hold."""
    parts = []
    for entry in entries:
        try:
            parts.append(tar_bytes(entry, end=b""))
        except (ValueError, UnicodeError):
            continue
    return b"".join([*parts, bytes(1024)])


def _all(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))
