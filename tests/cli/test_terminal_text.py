"""Names from files cannot send control characters to the terminal."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from vflops.cli.terminal.columns import columns, heading
from vflops.cli.terminal.console import say, shell_path
from vflops.cli.train.data.data_lines import print_lines

HOSTILE = "a\udcff\x1b]0;title\x07\x9b2J\u202eb'\\c d"


def test_what_is_printed_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print(heading(HOSTILE))
    print(columns([[HOSTILE, HOSTILE]]))
    print(shell_path(Path(HOSTILE)))
    print_lines([HOSTILE])
    say(HOSTILE)
    out, err = capsys.readouterr()
    assert out.count("\\x1b]0;title") == 5 and "\\x1b" in err
    assert all(line.isprintable() for line in (out + err).splitlines())


def test_an_escaped_path_is_still_the_path_to_a_shell() -> None:
    script = f"printf %s {shell_path(Path(HOSTILE))}"
    shown = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert os.fsdecode(shown.stdout) == HOSTILE
    assert shell_path(Path("a b")) == "'a b'"
