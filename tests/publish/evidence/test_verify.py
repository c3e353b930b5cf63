from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.evidence_runs import concluded
from tests.support.sample_parts import Vflops, write_system
from tests.support.trained_runs import HandmadeRun, course, job, write_telemetry
from vflops.cli.publish import evidence
from vflops.errors import FolderError, RunFailed
from vflops.publish.evidence import rederive
from vflops.publish.evidence.archive import archive
from vflops.publish.evidence.verify import verify
from vflops.publish.report import report_page
from vflops.record import installed_package
from vflops.record.files.digest import Digest, file_digest
from vflops.record.files.regular_file import SPARE_BYTES
from vflops.record.folder import RunFolder, file_hash
from vflops.record.installed_package import PackageRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.evidence.evidence_names import DERIVED
from vflops.results.evidence.integrity import FolderIntegrity, altered_record
from vflops.results.evidence.line_marks import describe_changes, marks
from vflops.results.evidence.manifest import Manifest, read_manifest, write_manifest
from vflops.results.score.scoring import score
from vflops.run import pipeline
from vflops.run.observer import RunObserver

LOG = "jobs/0/0/events.jsonl"


def lines_of(folder: RunFolder) -> list[bytes]:
    return (folder.path / LOG).read_bytes().splitlines(keepends=True)


def rewrite(folder: RunFolder, lines: list[bytes]) -> None:
    (folder.path / LOG).write_bytes(b"".join(lines))


def swapped(lines: list[bytes]) -> list[bytes]:
    return [*lines[:4], lines[5], lines[4], *lines[6:]]


def changed(line: bytes) -> bytes:
    return line.replace(b'"time_s": ', b'"time_s": 1')


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda lines: [*lines[:4], changed(lines[4]), *lines[5:]], "line 5 was changed"),
        (lambda lines: [*lines[:4], *lines[5:]], "line 5 was dropped"),
        (lambda lines: [*lines[:4], *lines[6:]], "lines 5 to 6 were dropped"),
        (swapped, "lines 5 to 6 are in a different order"),
        (lambda lines: [lines[-1], *lines[:-1]], "lines 1 to 11 are in a different order"),
        (lambda lines: lines[:-2], "cut off after line 9: the last 2 lines of 11 are missing"),
        (lambda lines: [*lines[:4], b"{}\n", *lines[4:]], "line 5 was added"),
        (
            lambda lines: [changed(lines[0]), *lines[1:6], *lines[7:]],
            "line 1 was changed|line 7 was dropped",
        ),
        (lambda lines: [*lines[:-1], lines[-1].strip()], "only its line endings changed"),
        (lambda lines: [], "cut off after line 0: the last 11 lines of 11 are missing"),
    ],
)
def test_an_edit_of_a_log_is_named_by_its_line(
    run_folder: RunFolder, edit: Callable[[list[bytes]], list[bytes]], words: str
) -> None:
    concluded(run_folder)
    assert len(lines_of(run_folder)) == 11
    rewrite(run_folder, edit(lines_of(run_folder)))
    found = verify(run_folder.path).alterations
    found = tuple(line for line in found if not line.startswith("score.json"))
    for line, expected in zip(found, words.split("|"), strict=True):
        assert line.startswith(f"{LOG}: {expected}")


def test_a_log_written_anew_from_a_line_on_is_found(run_folder: RunFolder) -> None:
    """Who edits a line and chains all that follow again meets the pinned hashes."""
    concluded(run_folder)
    pin = read_manifest(run_folder.path)
    lines = lines_of(run_folder)
    lines[4] = changed(lines[4])
    for number in range(5, len(lines)):
        old = hashlib.sha256(lines_of(run_folder)[number - 1].strip()).hexdigest().encode()
        new = hashlib.sha256(lines[number - 1].strip()).hexdigest().encode()
        assert old in lines[number]
        lines[number] = lines[number].replace(old, new)
    rewrite(run_folder, lines)
    assert not any(log.faults for log in run_folder.history().logs)  # the chain itself is whole
    assert f"{LOG}: lines 5 to 11 were changed" in verify(run_folder.path).alterations
    assert pin is not None
    assert pin.logs[0].last_sha256 != hashlib.sha256(lines[-1].strip()).hexdigest()


def test_the_manifest_pins_every_file_and_the_last_hash_of_the_chain(
    run_folder: RunFolder,
) -> None:
    concluded(run_folder)
    found = Manifest.read(run_folder.path / "manifest.json")
    assert found.run == run_folder.record.id
    assert [pin.path for pin in found.files] == [
        "graphs/sample.json",
        LOG,
        "run.json",
        "system.json",
    ]
    assert [pin.path for pin in found.derived] == ["score.json"]
    for pin in (*found.files, *found.derived):
        path = run_folder.path / pin.path
        assert (pin.sha256, pin.size_bytes) == (file_hash(path), path.stat().st_size)
    (log,) = found.logs
    last = lines_of(run_folder)[-1].rstrip(b"\n")
    assert (log.lines, log.last_sha256) == (11, hashlib.sha256(last).hexdigest())


def test_files_that_were_changed_are_missing_or_new(run_folder: RunFolder) -> None:
    concluded(run_folder)
    (run_folder.path / "system.json").unlink()
    with (run_folder.path / "graphs" / "sample.json").open("a") as file:
        file.write(" ")
    (run_folder.path / "jobs" / "9").mkdir()
    (run_folder.path / "jobs" / "9" / "notes.txt").write_text("x")
    (run_folder.path / "away").symlink_to("/etc/hostname")
    found = verify(run_folder.path)
    assert not found.intact
    told = "\n".join(found.alterations)
    assert "system.json: missing" in told
    assert "graphs/sample.json: changed (from " in told and " bytes)" in told
    assert "jobs/9/notes.txt: added" in told
    assert "away: a link, not a file" in told


def test_a_manifest_that_is_a_link_is_no_manifest(run_folder: RunFolder, tmp_path: Path) -> None:
    concluded(run_folder)
    assert verify(run_folder.path).intact
    outside = (run_folder.path / "manifest.json").rename(tmp_path / "outside.json")
    (run_folder.path / "manifest.json").symlink_to(outside)
    assert verify(run_folder.path).alterations == ("manifest.json: a link, not a file",)


def test_checkpoints_weights_and_locks_are_no_part_of_it(run_folder: RunFolder) -> None:
    concluded(run_folder)
    left = (
        "jobs/0/checkpoint/step-1.state",
        "weights/a.state",
        "join/controller.json",
        ".lock",
        "jobs/0/.1.tmp",
    )
    for name in left:
        path = run_folder.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    assert verify(run_folder.path).intact
    (run_folder.path / "jobs" / "0" / "0" / "checkpoint").write_text("x")
    assert not verify(run_folder.path).intact  # it is elsewhere, so it is none


def test_a_page_for_people_is_noted_and_not_handed_on(run_folder: RunFolder) -> None:
    """``vflops roofline`` leaves one there: it alters nothing, and nothing vouches for it."""
    concluded(run_folder)
    page = run_folder.path / "roofline.html"
    page.write_text("<p>1 EFLOPS</p>")
    write_manifest(run_folder)
    found = verify(run_folder.path)
    assert found.intact and found.notes[0].startswith("roofline.html: a page that is not pinned")
    assert altered_record(Contents(run_folder)) == ()
    assert verify(archive(run_folder)).notes == ()
    (run_folder.path / "graphs" / "page.html").write_text("x")
    assert not verify(run_folder.path).intact


def test_a_pin_is_never_renewed(run_folder: RunFolder) -> None:
    """Concluding an edited run again does not make the edit good; what was added is pinned."""
    concluded(run_folder)
    lines = lines_of(run_folder)
    rewrite(run_folder, [*lines[:4], changed(lines[4]), *lines[5:]])
    (run_folder.path / "telemetry").mkdir()
    (run_folder.path / "telemetry" / "imported-1.jsonl").write_text("{}\n")
    write_manifest(run_folder)
    found = altered_record(Contents(run_folder))
    assert found == (f"{LOG}: line 5 was changed",)
    pinned = read_manifest(run_folder.path)
    assert pinned is not None
    assert "telemetry/imported-1.jsonl" in [pin.path for pin in pinned.files]


def test_an_edit_before_the_first_manifest_is_found_by_the_chain(run_folder: RunFolder) -> None:
    lines = lines_of(run_folder)
    rewrite(run_folder, [*lines[:4], changed(lines[4]), *lines[5:]])
    write_manifest(run_folder)
    found = verify(run_folder.path).alterations
    assert found == (f"{LOG}:6: does not follow the line before it",)


def test_code_that_is_not_known_here_is_noted(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    concluded(run_folder)
    monkeypatch.setattr(
        installed_package, "installed_package", lambda: PackageRecord(version="9", sha256="f" * 64)
    )
    found = verify(run_folder.path)
    package = run_folder.record.package
    assert found.intact and package and package.sha256
    assert found.notes[0].startswith(
        f"run.json: made by vflops {package.version} with the package {package.sha256[:12]}, not a "
        "known release: "
    )


def test_derived_files_may_be_made_again(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A score by a newer version is not the pinned one, but what the record gives: it is intact."""
    import vflops.results.score.scoring as newer

    concluded(run_folder)
    assert verify(run_folder.path).alterations == verify(run_folder.path).notes == ()
    before = run_folder.score_file.read_bytes()
    real = newer.score
    monkeypatch.setattr(
        newer, "score", lambda contents: real(contents).model_copy(update={"workload": "newer"})
    )
    run_folder.score_file.write_bytes(before.replace(b'"suite"', b'"newer"'))
    found = verify(run_folder.path)
    assert found.intact
    assert "score.json: regenerated later" in found.notes[0]
    run_folder.score_file.write_bytes(before.replace(b'"suite"', b'"other"'))
    (line,) = verify(run_folder.path).alterations
    assert "matches neither the manifest nor the recorded data" in line and "vflops score" in line
    run_folder.score_file.unlink()
    (line,) = verify(run_folder.path).alterations
    assert line.startswith("score.json: missing; it is a derived file, which vflops score")


def test_a_concluded_run_and_its_page(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The findings that the manifest pins do not follow from it; an edited page is found."""
    monkeypatch.setattr(report_page, "write_report", _plain_page)  # the true one takes a second
    findings = pipeline.conclude(run_folder, RunObserver())
    before = Manifest.read(run_folder.path / "manifest.json")
    assert [pin.path for pin in before.derived] == ["findings.json", "report.html", "score.json"]
    assert verify(run_folder.path).alterations == ()
    assert check(Contents(run_folder)) == findings
    page = run_folder.report_file.read_text()
    run_folder.report_file.write_text(page + "<p>1 EFLOPS</p>")
    (line,) = verify(run_folder.path).alterations
    assert line.startswith("report.html: matches neither")
    other = before.model_copy(update={"derived": ()})  # as if others were made since
    other.write(run_folder.path / "manifest.json")
    run_folder.report_file.write_text(page)
    found = verify(run_folder.path)
    assert found.intact
    assert [line.partition(":")[0] for line in found.notes] == list(DERIVED)


@pytest.fixture
def concluded_run(run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setattr(report_page, "write_report", _plain_page)
    pipeline.conclude(run_folder, RunObserver())
    assert verify(run_folder.path).intact
    return run_folder


SCRIPT = "<script>document.title = 'forged'</script>"


def _forge(folder: RunFolder, name: str) -> None:
    """Change a derived file, and pin it as a signer could."""
    path = folder.path / name
    path.write_text(path.read_text() + SCRIPT)
    write_manifest(folder)


@pytest.mark.parametrize("name", DERIVED)
def test_a_derived_file_that_was_pinned_must_follow_from_the_record(
    concluded_run: RunFolder, name: str
) -> None:
    _forge(concluded_run, name)
    found = verify(concluded_run.path)
    line = next(line for line in found.alterations if line.startswith(name))
    assert line.startswith(f"{name}: matches the manifest, but does not follow from the recorded")
    assert not found.accepted


@pytest.mark.parametrize("other", ["package", "charts"])
def test_a_report_of_another_version_is_not_called_intact(
    concluded_run: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    other: str,
) -> None:
    """A forger may claim any version: what cannot be recomputed is never confirmed."""
    _forge(concluded_run, "report.html")
    changes = {"sha256": "f" * 64} if other == "package" else {"charts": {"altair": "99"}}
    package = installed_package.installed_package().model_copy(update=changes)
    monkeypatch.setattr(rederive, "installed_package", lambda: package)
    found = verify(concluded_run.path)
    assert found.alterations == () and not found.intact
    (line,) = found.unconfirmed
    assert line.startswith("report.html: cannot be recomputed by this version")
    evidence.verify(concluded_run.path)
    shown = capsys.readouterr().out
    assert "unknown    report.html" in shown and "intact" not in shown


def test_a_full_disk_does_not_make_a_report_false(
    concluded_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(contents: Contents) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(report_page, "write_report", full)
    with pytest.raises(RunFailed, match="No space left"):
        verify(concluded_run.path)


def test_concluding_again_keeps_the_pins(concluded_run: RunFolder) -> None:
    before = (concluded_run.path / "manifest.json").read_bytes()
    pipeline.conclude(concluded_run, RunObserver())
    assert (concluded_run.path / "manifest.json").read_bytes() == before
    with (concluded_run.path / "graphs" / "sample.json").open("a") as file:
        file.write(" ")
    pipeline.conclude(concluded_run, RunObserver())
    assert any(
        line.startswith("graphs/sample.json: changed")
        for line in verify(concluded_run.path).alterations
    )


def _plain_page(contents: Contents) -> None:
    contents.folder.report_file.write_text(f"<p>{contents.folder.record.id}</p>")


def test_what_processes_printed_may_go_on_but_not_change(run_folder: RunFolder) -> None:
    path = run_folder.path / "jobs" / "0" / "agent.log"
    path.write_text("begun\n")
    concluded(run_folder)
    path.write_text("begun\nended\n")
    found = verify(run_folder.path)
    assert found.intact and found.notes[0].startswith("jobs/0/agent.log: ")
    path.write_text("Begun\nended\n")
    assert not verify(run_folder.path).intact


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "vflops.manifest/99"}', "\xff\x00"])
def test_a_damaged_manifest_is_an_alteration(run_folder: RunFolder, text: str) -> None:
    concluded(run_folder)
    (run_folder.path / "manifest.json").write_text(text)
    (line,) = verify(run_folder.path).alterations
    assert "manifest.json" in line


def test_a_manifest_of_another_run_is_found(run_folder: RunFolder) -> None:
    concluded(run_folder)
    found = Manifest.read(run_folder.path / "manifest.json")
    found.model_copy(update={"run": "other"}).write(run_folder.path / "manifest.json")
    (line,) = verify(run_folder.path).alterations
    assert line.startswith("manifest.json: it belongs to run other")


def test_without_a_manifest_or_without_a_run(run_folder: RunFolder, tmp_path: Path) -> None:
    (line,) = verify(run_folder.path).alterations
    assert line.startswith("manifest.json: missing")
    with pytest.raises(FolderError, match="not a run folder"):
        verify(tmp_path)


@pytest.mark.parametrize(
    ("logs", "words"),
    [
        (lambda logs: [{**logs[0], "last_sha256": "0" * 64}], "do not match it"),
        (lambda logs: [{**logs[0], "marks": "AAAA" * 11}], "do not match it"),
        (lambda logs: [], "are not pinned"),
        (lambda logs: [*logs, {**logs[0], "path": "run.json"}], "which is not one of its logs"),
    ],
)
def test_what_the_manifest_says_of_lines_is_looked_at_too(
    run_folder: RunFolder, logs: Callable[[list[Any]], list[Any]], words: str
) -> None:
    concluded(run_folder)
    path = run_folder.path / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "logs": logs(manifest["logs"])}))
    (line,) = verify(run_folder.path).alterations
    assert line.startswith("manifest.json: ") and words in line


def test_without_a_manifest_the_log_knows_the_hashes_of_files(handmade_run: HandmadeRun) -> None:
    folder = handmade_run.folder
    write_system(folder)
    handmade_run.plan(job(1))
    write_telemetry(handmade_run.attempt(1, 1000.0, *course(0.85)), 1000.0, 60)
    handmade_run.end()
    assert len(verify(folder.path).alterations) == 1  # the manifest
    names = ["jobs/1/job.json", "jobs/1/0/telemetry.jsonl", "system.json"]
    names += [f"graphs/{path.name}" for path in folder.graph_files]
    assert len(names) == 4
    for name in names:
        with (folder.path / name).open("a") as file:
            file.write("\n")
    told = verify(folder.path).alterations
    assert {f"{name}: does not match its hash in the log" for name in names} < set(told)
    (folder.path / "system.json").unlink()
    told = verify(folder.path).alterations
    assert "system.json: missing, but its hash is in the log" in told


def test_a_damaged_run_json_is_named_once(run_folder: RunFolder) -> None:
    concluded(run_folder)
    (run_folder.path / "run.json").write_text("{}")
    found = verify(run_folder.path)
    assert found.run is None
    named = [line for line in found.alterations if "run.json" in line]
    assert [line[:16] for line in named] == ["run.json: change"]


def test_a_pipe_in_the_folder_is_told_and_not_waited_for(run_folder: RunFolder) -> None:
    concluded(run_folder)
    os.mkfifo(run_folder.path / "graphs" / "pipe.json")
    assert verify(run_folder.path).alterations == ("graphs/pipe.json: not a file",)


def test_differences_of_long_logs_are_told_without_comparing_all(run_folder: RunFolder) -> None:
    old = marks([b"%d" % number for number in range(5000)])
    new = marks([b"x%d" % number for number in range(4000)])
    assert describe_changes(old, new) == ["lines 1 to 5000 were replaced by 4000 lines"]
    assert describe_changes(old, old) == []


def test_evidence_needs_no_torch() -> None:
    modules = ", ".join(
        f"vflops.publish.evidence.{name}" for name in ("sign_run", "archive", "extract")
    )
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("jobs/0/0/node-3.json", "a folder that was added after the run was concluded"),
        ("empty", "a folder that was added after the run was concluded"),
        ("graphs/a\x1bb", "a name with odd characters"),
    ],
)
def test_an_added_folder_is_an_alteration(run_folder: RunFolder, folder: str, words: str) -> None:
    (run_folder.path / "buffer").mkdir()
    concluded(run_folder)
    assert verify(run_folder.path).intact  # an empty folder of the run itself is pinned
    (run_folder.path / folder).mkdir()
    (line,) = verify(run_folder.path).alterations
    assert line.endswith(f": {words}") and line.isprintable()


def test_older_manifests_do_not_list_folders(run_folder: RunFolder) -> None:
    concluded(run_folder)
    manifest = Manifest.read(run_folder.path / "manifest.json")
    older = manifest.model_copy(update={"empty_folders": None})
    older.write(run_folder.path / "manifest.json")
    (run_folder.path / "claims").mkdir()
    found = verify(run_folder.path)
    assert found.intact and found.notes[0].startswith("claims: an empty folder")
    (run_folder.path / "jobs" / "0" / "0" / "node-3.json").mkdir()
    (line,) = verify(run_folder.path).alterations
    assert line.startswith("jobs/0/0/node-3.json: a folder that was added")


def test_folders_that_are_nested_too_deeply_are_an_alteration(run_folder: RunFolder) -> None:
    concluded(run_folder)
    (run_folder.path / "/".join("d" * 400)).mkdir(parents=True)
    (line,) = verify(run_folder.path).alterations
    assert line.endswith("/d: not a plain path")


def test_a_folder_in_place_of_a_node_record_does_not_break_score_and_check(
    handmade_run: HandmadeRun,
) -> None:
    folder = handmade_run.folder
    write_system(folder)
    handmade_run.plan(job(1))
    attempt = handmade_run.attempt(1, 1000.0, *course(0.85))
    handmade_run.end()
    before = check(Contents(folder)), score(Contents(folder))
    for name in ("node-3.json", "telemetry-3.jsonl"):
        (attempt / name).mkdir()
    assert (check(Contents(folder)), score(Contents(folder))) == before


@pytest.mark.parametrize("command", ["verify", "check"])
def test_a_folder_with_too_much_to_read_is_refused(
    run_folder: RunFolder, vflops: Vflops, command: str
) -> None:
    with (run_folder.path / "jobs" / "huge.bin").open("wb") as file:
        file.truncate(20 << 30)
    done = vflops(command, run_folder.path)
    assert done.returncode == 2
    assert "holds more than 8192 MiB" in done.stderr


def test_a_file_of_another_size_is_not_read(run_folder: RunFolder) -> None:
    write_manifest(run_folder)
    with (run_folder.path / LOG).open("r+b") as file:
        file.truncate(SPARE_BYTES << 1)
    read: list[Path] = []

    def digest(path: Path) -> Digest:
        read.append(path)
        return file_digest(path)

    size = f"{LOG}: changed (from "
    integrity = FolderIntegrity(run_folder.path, digest)
    assert integrity.comparison.altered[LOG][0].startswith(size)
    assert read and run_folder.path / LOG not in read
