"""Which runs are the user's own is recorded outside of their folders."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.support.evidence_runs import concluded
from vflops.cli.terminal.console import open_interrupted_run, open_run
from vflops.config.profiles import tiny
from vflops.errors import FolderError, UsageError
from vflops.publish.evidence.archive import archive
from vflops.publish.evidence.extract import extract
from vflops.record import own_runs
from vflops.record.folder import RunFolder, newest_own
from vflops.record.own_runs import (
    finish_hint,
    inherit_mark,
    is_own,
    is_remembered,
    remember,
    unrecorded_reason,
)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for the record of own runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "vflops"


@pytest.fixture
def run(state: Path, tmp_path: Path) -> RunFolder:
    """A run that was started here, and has not ended."""
    return RunFolder.create(tmp_path / "runs", "suite", tiny())


def foreign_copy(run: RunFolder, name: str) -> Path:
    """Write a run that looks newer, as a stranger would."""
    path = run.path.with_name(name)
    path.mkdir()
    run.record.model_copy(update={"id": name}).write(path / "run.json")
    return path


def test_a_run_that_was_created_here_is_own_wherever_it_lies(
    run: RunFolder, state: Path, tmp_path: Path
) -> None:
    assert is_own(run.path)
    copied = Path(shutil.copytree(run.path, tmp_path / "copied"))
    assert is_own(copied) and is_own(run.path.rename(tmp_path / "moved"))
    (entry,) = (state / "written").iterdir()
    assert entry.read_text() == f"run {run.record.id}\n"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


def test_a_changed_or_unrecorded_run_is_not_own(run: RunFolder, state: Path) -> None:
    text = (run.path / "run.json").read_text()
    (run.path / "run.json").write_text(text.replace('"seed": 1', '"seed": 2'))
    assert not is_own(run.path)
    (run.path / "run.json").write_text(text)
    assert is_own(run.path)
    shutil.rmtree(state)
    assert not is_own(run.path)
    assert not is_own(run.path / "nowhere")


def test_an_archive_of_ones_own_is_not_own_when_extracted(
    run_folder: RunFolder, tmp_path: Path
) -> None:
    """What it contains besides run.json may have been changed."""
    packed = archive(concluded(run_folder))
    extracted = extract(packed, tmp_path / "other")
    assert is_own(run_folder.path) and not is_own(extracted)
    assert (extracted / "run.json").read_bytes() == (run_folder.path / "run.json").read_bytes()


def test_a_run_with_the_settings_of_a_stranger_is_not_own(run: RunFolder, tmp_path: Path) -> None:
    copies = [RunFolder.create(tmp_path / "audits", "audit", tiny()).path for _ in range(2)]
    inherit_mark(copies[0], run.path)
    inherit_mark(copies[1], foreign_copy(run, "20200101T000000Z-suite-ffffff"))
    assert list(map(is_own, copies)) == [True, False]


def test_commands_without_a_run_take_the_newest_own_one(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = foreign_copy(run, "99991231T235959Z-suite-ffffff")
    monkeypatch.chdir(tmp_path)
    assert newest_own(Path("runs")) == Path("runs") / run.path.name
    assert open_run(None).record.id == open_interrupted_run(None).record.id == run.record.id
    assert open_run(stranger).record.id == stranger.name
    with pytest.raises(FolderError) as wrong:
        RunFolder.open(Path("runs"))
    assert run.record.id in (wrong.value.hint or "")
    shutil.rmtree(run.path)
    for opening in (open_run, open_interrupted_run):
        with pytest.raises(UsageError, match="of yours, only 1 run that vflops did not") as error:
            opening(None)
        assert stranger.name not in str(error.value)


def test_incomplete_runs_of_others_are_not_resumed_by_advice(run: RunFolder) -> None:
    stranger = foreign_copy(run, "20200101T000000Z-suite-ffffff")
    assert finish_hint(run.path) == f"resume it: vflops resume {run.path}"
    assert finish_hint(run.path, "'a b'") == "resume it: vflops resume 'a b'"
    assert "resume" not in finish_hint(stranger)


def test_a_home_that_cannot_be_written_to_is_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file" / "state"))
    run = RunFolder.create(tmp_path / "runs", "suite", tiny())
    assert not is_own(run.path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "cannot write to" in (unrecorded_reason() or "")
    with pytest.raises(UsageError) as error:
        open_run(None)
    assert "cannot write to" in (error.value.hint or "")


def test_the_folder_follows_the_xdg_specification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", value)
        assert own_runs.state_folder() == tmp_path / ".local" / "state" / "vflops"
    remember("a" * 64, "a note")
    assert is_remembered("a" * 64) and not is_remembered("b" * 64)
    assert unrecorded_reason() is None
