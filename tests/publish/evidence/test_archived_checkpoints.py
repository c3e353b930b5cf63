"""Checkpoints that travel with a run, so that somebody else can audit it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.evidence_runs import Entry, run_entry, write_archive
from tests.support.sample_parts import Vflops
from vflops.errors import FolderError, UsageError
from vflops.publish.evidence import archive as archive_module
from vflops.publish.evidence.archive import archive, states_for_audits
from vflops.publish.evidence.archive_limits import LIMITS, ArchiveRefused, Limits
from vflops.publish.evidence.extract import extract
from vflops.publish.evidence.verify import verify
from vflops.record.folder import RunFolder
from vflops.results.evidence.evidence_names import is_state, listing
from vflops.results.evidence.manifest import write_manifest

KEPT = "jobs/1/checkpoint/step-000000010.state"
NEWEST = "jobs/1/checkpoint/step-000000011.state"
WEIGHTS = "weights/r00001-w00001.state"
STATES = {KEPT: b"ten steps", NEWEST: b"eleven steps", WEIGHTS: b"a candidate"}


@pytest.fixture
def kept_run(run_folder: RunFolder) -> RunFolder:
    """A concluded run whose log committed to three states, of which it keeps two for audits."""
    with run_folder.start_attempt(job=1) as events:
        for name, kept in ((KEPT, True), (NEWEST, False)):
            events.write(
                "checkpoint",
                step=int(Path(name).stem.removeprefix("step-")),
                sha256=hashlib.sha256(STATES[name]).hexdigest(),
                loss=1.0,
                file=Path(name).name,
                size_bytes=len(STATES[name]),
                kept=kept,
            )
        events.write(
            "candidate-trained",
            candidate=Path(WEIGHTS).stem,
            accuracy=0.5,
            epochs=1,
            reason="epochs",
            inherited=False,
            hyper={"batch": 8},
            weights_sha256=hashlib.sha256(STATES[WEIGHTS]).hexdigest(),
        )
        events.write("end")
    for name, data in STATES.items():
        path = run_folder.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (run_folder.path / KEPT).with_suffix(".json").write_text("{}")
    write_manifest(run_folder)
    return run_folder


def test_kept_states_come_back_from_an_archive(kept_run: RunFolder, tmp_path: Path) -> None:
    states = states_for_audits(kept_run)
    assert states == {KEPT: 9, WEIGHTS: 11}
    path = archive(kept_run, tmp_path / "a.tar.bz2", tuple(states))
    again = archive(kept_run, tmp_path / "b.tar.bz2", tuple(states))
    assert path.read_bytes() == again.read_bytes()
    assert verify(path).intact
    made = extract(path, tmp_path / "theirs")
    present = {file.relative_to(made).as_posix() for file in made.rglob("*") if file.is_file()}
    assert {name for name in present if "checkpoint" in name or "weights" in name} == {*states}
    assert all((made / name).read_bytes() == STATES[name] for name in states)
    assert (made / "manifest.json").read_bytes() == kept_run.manifest_file.read_bytes()
    without = extract(archive(kept_run, tmp_path / "c.tar.bz2"), tmp_path / "without")
    assert not (without / KEPT).exists() and not (without / "weights").exists()


@pytest.mark.parametrize("name", STATES)
def test_a_changed_state_is_an_alteration(kept_run: RunFolder, name: str) -> None:
    assert verify(kept_run.path).intact
    (kept_run.path / name).write_bytes(b"forged")
    assert verify(kept_run.path).alterations == (f"{name}: does not match its hash in the log",)
    (kept_run.path / name).unlink()
    assert verify(kept_run.path).intact


@pytest.mark.parametrize(
    "name", ["jobs/7/checkpoint/step-000000010.state", "weights/r00002-w00001.state"]
)
def test_an_added_state_is_an_alteration(kept_run: RunFolder, name: str, tmp_path: Path) -> None:
    names = (*listing(kept_run.path).files, "manifest.json")
    entries = [
        Entry(f"{kept_run.record.id}/{each}", (kept_run.path / each).read_bytes()) for each in names
    ]
    added = Entry(f"{kept_run.record.id}/{name}", b"added")
    path = write_archive(tmp_path / "added.tar.bz2", *entries, added)
    assert f"{name}: the log has no such state" in verify(path).alterations


def test_a_changed_state_is_not_packed(kept_run: RunFolder) -> None:
    (kept_run.path / KEPT).write_bytes(b"forged")
    with pytest.raises(FolderError, match=f"{KEPT}: does not match its hash in the log"):
        states_for_audits(kept_run)
    assert archive(kept_run).is_file()  # without states it does not matter


def test_the_command_says_the_size(kept_run: RunFolder, vflops: Vflops, tmp_path: Path) -> None:
    done = vflops("archive", kept_run.path, "--checkpoints", "--out", "a.tar.bz2")
    assert "with 2 checkpoints for audits, 20.0 B before packing" in done.stderr
    assert done.stdout.splitlines()[-1].startswith("size ")
    extract(tmp_path / "a.tar.bz2", tmp_path / "theirs")


def test_a_run_without_kept_states_says_so(run_folder: RunFolder) -> None:
    write_manifest(run_folder)
    with pytest.raises(UsageError, match="has no checkpoints for audits"):
        states_for_audits(run_folder)


@pytest.mark.parametrize(
    "name",
    [
        "jobs/1/checkpoint/step-000000010.json",
        "jobs/1/checkpoint/step-000000010.pt",
        "jobs/1/checkpoint/step-1.state",
        "jobs/1/checkpoint/more/step-000000010.state",
        "jobs/1/Checkpoint/step-000000010.state",
        "jobs/1/checkpoint/step-\uff10\uff10\uff10\uff10\uff10\uff10\uff10\uff11\uff10.state",
        "weights/evil.state",
        "weights/r00001-w00001.pt",
        "Weights/r00001-w00001.state",
        "weights/more/r00001-w00001.state",
    ],
)
def test_nothing_else_is_accepted_next_to_states(
    run_folder: RunFolder, tmp_path: Path, name: str
) -> None:
    assert not is_state(name)
    entry = Entry(f"{run_folder.record.id}/{name}", b"x")
    path = write_archive(tmp_path / "evil.tar.bz2", run_entry(run_folder), entry)
    with pytest.raises(ArchiveRefused, match="nor a state for audits"):
        extract(path, tmp_path / "into")
    assert list((tmp_path / "into").iterdir()) == []


def test_states_have_a_limit_of_their_own(
    kept_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = tuple(states_for_audits(kept_run))
    path = archive(kept_run, tmp_path / "a.tar.bz2", states)
    record_bytes = sum(
        file.stat().st_size
        for file in extract(path, tmp_path / "made").rglob("*")
        if file.is_file() and not is_state(file.relative_to(tmp_path / "made").as_posix())
    )
    extract(path, tmp_path / "fits", Limits(size_bytes=record_bytes, state_bytes=20))
    with pytest.raises(ArchiveRefused, match="of checkpoints"):
        extract(path, tmp_path / "into", Limits(state_bytes=19))
    monkeypatch.setattr(archive_module, "LIMITS", replace(LIMITS, state_bytes=19))
    with pytest.raises(ArchiveRefused, match="of checkpoints"):
        archive(kept_run, tmp_path / "b.tar.bz2", states)
    monkeypatch.setattr(archive_module, "LIMITS", LIMITS)
    monkeypatch.setattr(archive_module, "_MAX_FILE_BYTES", 10)
    with pytest.raises(FolderError, match=r"-w00001\.state is too large for an archive"):
        archive(kept_run, tmp_path / "c.tar.bz2", states)
