"""The tool that builds the container image; a test on SLURM builds one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import build_image


def test_missing_programs_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["build_image", "--work", str(tmp_path / "work")])
    assert build_image.main() == 2
    assert capsys.readouterr().err == "missing: apt-get install mmdebstrap podman crun\n"
    assert not (tmp_path / "work").exists()


def test_a_step_that_fails_ends_the_build_with_its_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for program in ("mmdebstrap", "podman", "crun"):
        path = tmp_path / program
        path.write_text("#!/bin/sh\necho no space left >&2\nexit 3\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "argv", ["build_image", "--work", str(tmp_path / "work")])
    assert build_image.main() == 1
    assert "podman images --format …: no space left" in capsys.readouterr().err
