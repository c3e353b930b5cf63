"""``make run`` with a stand-in for the command: its exit code is passed on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(("code", "said"), [(0, None), (1, None), (3, 3), (130, 130)])
def test_make_run_hides_only_a_rule_that_is_not_met(
    tmp_path: Path, code: int, said: int | None
) -> None:
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
    assert (done.returncode == 0) == (said is None)
    assert said is None or f"Error {said}" in done.stderr
