"""Commands in unusual surroundings; ``make test-machines`` runs many more tests in them."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.evidence_runs import concluded
from tests.support.trained_runs import vflops_job_task
from vflops.record.folder import RunFolder
from vflops.results.task import closed_tasks

_SURROUNDINGS = {
    "LC_ALL": "C",
    "TZ": "Pacific/Kiritimati",  # UTC+14
    "COLUMNS": "40",
    "HOME": "/sys",  # where even root cannot create a file
}

_UNKNOWN_USER = """
import pwd

def unknown(uid):
    raise KeyError(uid)

pwd.getpwuid = unknown

from vflops.cli import main
main()
"""


def run_there(folder: Path, *words: str) -> str:
    """Run a command in ``folder``, where files that it creates are private; return its output."""
    variables = {name: value for name, value in os.environ.items() if name != "VFLOPS_CACHE"}
    done = subprocess.run(
        [sys.executable, "-m", "vflops", *words],
        cwd=folder,
        env={**variables, **_SURROUNDINGS},
        umask=0o077,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode in (0, 1), f"{words}: {done.stderr}"  # 1: a rule is not met
    return done.stdout


def test_results_have_the_same_bytes_in_strange_surroundings(
    trained_folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the commands below are not patched either
    there = tmp_path / "a folder – Prüfstand 模型"
    there.mkdir()
    monkeypatch.setattr(closed_tasks, "job_task", vflops_job_task)  # as in other processes
    concluded(trained_folder)
    name = trained_folder.path.name
    shutil.copytree(trained_folder.path, there / name)
    (there / name / "score.json").unlink()
    for words in (["score", name], ["verify", name], ["archive", name]):
        assert run_there(there, *words)
    written = there / name / "score.json"
    assert written.read_bytes() == trained_folder.score_file.read_bytes()
    for path in (written, there / f"{name}.tar.bz2"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_the_machine_is_described_in_strange_surroundings(tmp_path: Path) -> None:
    there = tmp_path / "a folder – Prüfstand 模型"
    there.mkdir()
    assert "hardware" in run_there(there, "system")
    assert "image-classification" in run_there(there, "list")


def test_a_user_without_a_home_gets_a_report(trained_folder: RunFolder) -> None:
    concluded(trained_folder)
    done = subprocess.run(
        [sys.executable, "-c", _UNKNOWN_USER, "report", trained_folder.path.name],
        cwd=trained_folder.path.parent,
        env={name: value for name, value in os.environ.items() if name != "HOME"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert trained_folder.report_file.is_file()
