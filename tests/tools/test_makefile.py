"""``make run`` with a stand-in for the command: what ends it, and what is only said."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("code", [0, 1, 3, 130])
def test_make_run_fails_if_the_command_has_not_measured_all(tmp_path: Path, code: int) -> None:
    command = tmp_path / "vflops"
    command.write_text(f"#!/bin/sh\nexit {code}\n")
    command.chmod(0o755)
    (tmp_path / ".installed").touch()  # newer than what it is made from
    done = subprocess.run(
        ["make", "-f", ROOT / "Makefile", "run", f"VENV={tmp_path}", f"BIN={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
    )
    is_measured = code in (0, 1)
    assert (done.returncode == 0) == is_measured
    assert is_measured or f"Error {code}" in done.stderr
    assert ("a rule is not met" in done.stdout) == (code == 1)
