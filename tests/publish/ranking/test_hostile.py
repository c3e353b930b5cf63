"""Submissions that mean harm: escaped, refused or bounded; none of them ends a build."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import time
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support import trained_runs
from tests.support.ranking_runs import Submitted, submit
from vflops.errors import UsageError
from vflops.publish.evidence import extract
from vflops.publish.evidence.archive import pack
from vflops.publish.evidence.archive_limits import Limits
from vflops.publish.ranking import reader_processes, submission_folders, submission_reader
from vflops.publish.ranking.entry import Entry, Result
from vflops.publish.ranking.entry_store import Store
from vflops.publish.ranking.judge import NO_KEYS, TrustedKeys
from vflops.publish.ranking.ranking_pages import json_in_page
from vflops.publish.ranking.static_site import build
from vflops.publish.ranking.stranger_text import LONG, clean
from vflops.publish.ranking.submission_folders import LIMITS, Submission, find
from vflops.publish.ranking.submission_reader import read
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.check.rule_sets import RULE_SETS

SCRIPT = "</script><script>window.harmed=1</script><img src=x onerror=alert(1)>"
READ_CHUNK = reader_processes.read_chunk
BIDI = "safe\u202egnp.exe\u2066\u200b"
GOOD = {
    "workload": "w",
    "goal": "g",
    "data": "real",
    "unit": "VFLOPS",
    "score": 1e12,
    "time_s": 60.0,
    "to_target_s": None,
    "quality": 0.8,
    "accelerators": 8,
    "ranks": 8,
    "device": "d",
    "per_watt": None,
    "power": {"reason": "not measured"},
    "efficiency": 0.4,
    "repeats": 1,
    "problem": "data 0",
    "length": "3 epochs",
}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A submission that would rank; tests damage copies of it."""
    return submit(tmp_path_factory.mktemp("honest")).path


@pytest.fixture
def copy(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / "runs" / honest.name))


def entry_of(path: Path) -> Entry:
    (submission,) = find([path], Path("/nowhere"))
    return read(submission, NO_KEYS)


def test_the_honest_one_would_rank(copy: Path) -> None:
    assert entry_of(copy).reasons == ()


def _nan(folder: Path) -> None:
    file = folder / "system.json"
    file.write_text(file.read_text().replace('"value": 2', '"value": NaN'))


def _deep(folder: Path) -> None:
    (folder / "system.json").write_text('{"a":' * 200_000 + "1" + "}" * 200_000)


def _digits(folder: Path) -> None:
    file = folder / "score.json"
    file.write_text(file.read_text().replace('"ranks": 2', f'"ranks": {"9" * 5000}'))


def _unicode(folder: Path) -> None:
    (folder / "run.json").write_bytes(b'{"id": "\xff\xfe\xed\xa0\x80"}')


def _list(folder: Path) -> None:
    (folder / "run.json").write_text("[]")


def _empty_log(folder: Path) -> None:
    (folder / "jobs/0/0/events.jsonl").write_bytes(b"\0" * 1000)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_nan, "system.json"),
        (_deep, "is not JSON"),
        (_digits, "score.json"),
        (_unicode, "run.json is not JSON"),
        (_list, "run.json contains a list"),
        (_empty_log, "jobs/0/0/events.jsonl"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_damaged_file_is_a_reason_that_names_it(
    copy: Path, damage: Callable[[Path], None], reason: str
) -> None:
    damage(copy)
    found = entry_of(copy)
    assert found.reasons
    assert reason in " ".join(found.reasons)


@pytest.mark.parametrize(("name", "size_mb"), [("system.json", 100), ("jobs/1/0/x.jsonl", 200)])
def test_a_huge_file_is_refused_before_it_is_read(copy: Path, name: str, size_mb: int) -> None:
    with (copy / name).open("wb") as file:
        file.truncate(size_mb << 20)
    assert entry_of(copy).reasons == (
        f"{name} has {size_mb} MiB, but the limit is {16 if name.endswith('json') else 128} MiB",
    )


def test_links_and_pipes_are_refused(copy: Path) -> None:
    (copy / "run.json").unlink()
    os.mkfifo(copy / "run.json")  # would be waited for
    assert entry_of(copy).reasons == ("run.json is not a regular file",)
    (copy / "run.json").unlink()
    (copy / "run.json").symlink_to("/etc/hostname")
    assert entry_of(copy).reasons == ("run.json is not a regular file",)


def test_a_huge_quality_in_a_run_that_meets_its_own_rules_is_out_of_bounds(tmp_path: Path) -> None:
    found = entry_of(submit(tmp_path, Submitted(quality=1e40)).path)
    assert not found.results
    assert any("out of bounds: score" in reason or "rule" in reason for reason in found.reasons)


def test_a_negative_time_does_not_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trained_runs, "START_S", -1000.0)
    found = entry_of(submit(tmp_path).path)
    assert any("-984" in reason or "-1000" in reason for reason in found.reasons), found.reasons


@pytest.mark.parametrize(
    "change",
    [
        {"score": float("nan")},
        {"score": float("inf")},
        {"score": 1e300},
        {"score": -1.0},
        {"time_s": -5.0},
        {"time_s": 0.0},
        {"time_s": 1e12},
        {"quality": -0.1},
        {"ranks": 10**30},
        {"accelerators": -1},
        {"efficiency": 1e9},
        {"per_watt": float("nan")},
        {"data": "fake"},
        {"extra": 1},
    ],
    ids=str,
)
def test_a_number_out_of_bounds_is_no_result(change: dict[str, object]) -> None:
    Result.model_validate(GOOD)
    with pytest.raises(ValidationError):
        Result.model_validate({**GOOD, **change})


@pytest.mark.parametrize(
    "day",
    ["1999-01-01", "2026-1-1", "2026-01-01<script>", "20-26-01-01", "2025-19-39", "2026-02-29"],
)
def test_a_day_is_a_day(day: str) -> None:
    with pytest.raises(ValidationError):
        Entry(place="p", source="s", day=day)


def test_a_day_to_come_is_none_but_for_tomorrow() -> None:
    today = datetime.now(UTC).date()
    Entry(place="p", source="s", day=str(today + timedelta(days=1)))
    with pytest.raises(ValidationError, match="in the future"):
        Entry(place="p", source="s", day=str(today + timedelta(days=3)))


def test_all_files_together_have_a_bound(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission_folders, "LIMITS", replace(LIMITS, size_bytes=1 << 20))
    assert entry_of(copy).reasons == ()
    (copy / "rest.txt").write_bytes(b" " * (1 << 20))
    assert entry_of(copy).reasons == ("it holds more than 1 MiB",)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (replace(LIMITS, size_bytes=1 << 20), "holds more than 1 MiB"),
        (replace(LIMITS, files=5), "holds more than 5 files"),
        (replace(LIMITS, file_bytes={".txt": 1 << 20}), "rest.txt has 8 MiB, but the limit is 1"),
    ],
    ids=["size", "files", "file"],
)
def test_an_archive_is_not_unpacked_beyond_the_limits_of_the_ranking(
    copy: Path, monkeypatch: pytest.MonkeyPatch, limits: Limits, reason: str
) -> None:
    (copy / "rest.txt").write_bytes(b" " * (8 << 20))
    packed = copy.with_suffix(".tar.bz2")
    pack(RunFolder.open(copy), packed)
    written = list[tuple[str, int]]()
    write = extract._Entries._write

    def noted(self: extract._Entries, name: str, size: int) -> None:
        written.append((name, size))
        write(self, name, size)

    monkeypatch.setattr(extract._Entries, "_write", noted)
    monkeypatch.setattr(submission_reader, "LIMITS", limits)
    assert reason in entry_of(packed).reasons[0]
    assert len(written) <= limits.files and sum(size for _, size in written) < 1 << 20


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("where", ["extract._Entries._write", "verify.check_signature"])
def test_a_fault_of_the_reading_machine_is_not_kept_as_a_verdict(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, where: str
) -> None:
    (copy / "manifest.json.sig").write_text("-")
    pack(RunFolder.open(copy), copy.parent / "b.tar.bz2")
    shutil.rmtree(copy)
    store = Store(tmp_path / "entries", "rules")

    def fails(*given: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(f"vflops.publish.evidence.{where}", fails)
    entry = entry_of(copy.parent / "b.tar.bz2")
    assert os.strerror(number) in entry.reasons[0] and entry.retry
    store.add({"a": entry})
    assert store.get("a") is None
    store.add({"a": entry.model_copy(update={"retry": False})})
    assert store.get("a") is not None


def test_a_fault_of_the_machine_within_a_rule_is_not_kept_either(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(contents: Contents) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (rule,) = (rule for rule in RULE_SETS["practice"].rules if rule.id == "system")
    monkeypatch.setitem(rule.__dict__, "judge", fails)
    entry = entry_of(copy)
    assert "Input/output error" in entry.reasons[0] and entry.retry


def harmed(chunk: Sequence[Submission], trusted: TrustedKeys) -> reader_processes.Entries:
    """Reads as others do, but dies of one submission."""
    if any("deadly" in each.place for each in chunk):
        os.kill(os.getpid(), signal.SIGKILL)
    return READ_CHUNK(chunk, trusted)


def test_a_submission_that_kills_its_reader_is_listed_apart_and_others_rank(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = copy.parent
    copy.rename(runs / "a-deadly")
    for number in range(3):
        submit(runs, replace(Submitted(), id=f"20260901T000000Z-x-00000{1 + number}"))
    monkeypatch.setattr(reader_processes, "read_chunk", harmed)
    built = build([runs], tmp_path / "site")
    assert len(built.ranking.ranked) == 3
    assert [(each.entry.place, each.reasons) for each in built.ranking.unranked] == [
        ("a-deadly", (reader_processes.KILLED,))
    ]


def test_memory_has_an_end_in_the_processes_that_read() -> None:
    with reader_processes._pool(1) as pool:
        most, _ = pool.submit(resource.getrlimit, resource.RLIMIT_AS).result()
    assert 0 < most <= reader_processes.MAX_MEMORY_BYTES


def test_memory_that_runs_out_is_a_reason(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def large(*given: object) -> None:
        raise MemoryError

    monkeypatch.setattr("vflops.publish.ranking.submission_reader.judge", large)
    (reason,) = entry_of(copy).reasons
    assert "more memory" in reason


def test_names_are_bounded_and_nothing_in_them_is_unseen(tmp_path: Path) -> None:
    wanted = Submitted(cpu=BIDI + "x" * 500, device=SCRIPT)
    found = entry_of(submit(tmp_path, wanted).path)
    assert found.reasons == ()
    assert len(found.system) == 80
    (result,) = found.results
    assert result.device == SCRIPT[:79] or result.device == SCRIPT
    shown = next(fact.value for fact in found.facts if fact.name == "cpu model")
    assert shown.startswith("safe\ufffdgnp.exe\ufffd\ufffdxxx")
    page = build([tmp_path], tmp_path / "site").index.read_text()
    assert "<img" not in page
    assert page.count("</script>") == 2
    for system in (tmp_path / "site" / "systems").iterdir():
        assert "<script" not in system.read_text()
        assert "&lt;/script&gt;" in system.read_text()


def test_a_name_on_disk_that_is_no_unicode_is_shown_with_a_sign(copy: Path, tmp_path: Path) -> None:
    copy.rename(copy.parent / os.fsdecode(b"\xff\xfe<b>"))
    site = build([tmp_path / "runs"], tmp_path / "site")
    (only,) = site.ranking.ranked or site.ranking.unranked
    assert only.entry.place == "\ufffd\ufffd<b>"
    assert "<b>" not in site.index.read_text(encoding="utf-8")


def test_reasons_are_bounded(tmp_path: Path) -> None:
    found = read(Submission(tmp_path / ("x" * 200) / "y", "p" * 999, "s" * 999, False), NO_KEYS)
    assert len(found.place) == LONG
    assert len(found.source) == 80
    assert all(len(reason) <= LONG for reason in found.reasons)


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet=st.characters(), max_size=400), st.integers(2, 100))
def test_cleaned_text_is_one_bounded_line_of_signs_that_are_seen(text: str, most: int) -> None:
    found = clean(text, most)
    assert len(found) <= most
    assert "\n" not in found
    assert not {unicodedata.category(sign) for sign in found} & {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    found.encode()


@settings(max_examples=40, deadline=None)
@given(st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=10))
def test_data_in_a_page_is_itself_again_and_holds_no_tag(data: object) -> None:
    text = json_in_page(data)
    assert json.loads(text) == data
    assert "<" not in text


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_byte_is_changed_the_build_goes_on_and_the_run_does_not_rank(
    honest: Path, tmp_path: Path, data: st.DataObject
) -> None:
    folder = tmp_path / "runs" / honest.name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(honest, folder)
    files = sorted(path for path in folder.rglob("*.json*"))
    file = data.draw(st.sampled_from(files))
    whole = file.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    put = data.draw(st.binary(max_size=6))
    changed = whole[:at] + put + whole[at + 1 :]
    file.write_bytes(changed)
    assert entry_of(folder).reasons or changed == whole or _pins_the_same(file, changed, whole)


def _pins_the_same(file: Path, changed: bytes, whole: bytes) -> bool:
    """Space between the words of a manifest is nobody's evidence, unless it is signed."""
    if file.name != "manifest.json":
        return False
    with suppress(ValueError):
        return bool(json.loads(changed) == json.loads(whole))
    return False


def test_one_bad_submission_does_not_keep_others_from_ranking(copy: Path, tmp_path: Path) -> None:
    _deep(copy)
    submit(tmp_path / "runs", replace(Submitted(), id="20260909T000000Z-x-000009"))
    built = build([tmp_path / "runs"], tmp_path / "site")
    assert (len(built.ranking.ranked), len(built.ranking.unranked)) == (1, 1)


def test_a_folder_that_cannot_be_listed_does_not_keep_others_from_ranking(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = copy.parent / "closed"
    closed.mkdir()
    scandir = os.scandir

    def scan(path: Any = ".") -> Any:
        if Path(path) == closed:  # mode 000 keeps out everyone but root
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    entries = [read(submission, NO_KEYS) for submission in find([copy.parent], tmp_path / "site")]
    reasons = {entry.place: entry.reasons for entry in entries}
    assert reasons == {copy.name: (), "closed": ("cannot read closed: Permission denied",)}
    assert [entry.place for entry in entries if entry.retry] == ["closed"]
    with pytest.raises(UsageError, match=r"cannot read .*closed: Permission denied"):
        find([closed], tmp_path / "site")


def test_reading_comes_to_an_end(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*given: object) -> None:
        for _ in range(100):
            with suppress(Exception):  # as a rule that takes all for a failure of the file
                time.sleep(0.05)

    monkeypatch.setattr("vflops.publish.ranking.submission_reader.judge", slow)
    monkeypatch.setattr("vflops.publish.ranking.submission_reader.TIME_LIMIT_S", 0.1)
    assert entry_of(copy).reasons == ("not read within 0.1 s",)


def test_a_folder_that_vanishes_is_a_reason(tmp_path: Path) -> None:
    gone = Submission(tmp_path / "gone", "gone", "", False)
    assert gone.fingerprint() == gone.fingerprint()
    assert "gone" in read(gone, NO_KEYS).reasons[0]
