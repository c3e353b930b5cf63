"""Names from files cannot send control characters to the terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ranking_runs import submit
from vflops.cli.terminal.columns import columns, heading
from vflops.cli.terminal.console import say, shell_path
from vflops.cli.train.data.data_lines import print_lines

HOSTILE = "a\udcff\x1b]0;title\x07\x9b2J\u202eb'\\c d"
DECEPTIVE = "a\u202eb"


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


@pytest.mark.parametrize("format", ["csv", "json", "openmetrics"])
def test_a_terminal_shows_deceptive_characters_of_an_export_and_a_pipe_passes_them(
    tmp_path: Path, format: str
) -> None:
    folder = submit(tmp_path)
    record = json.loads((folder.path / "run.json").read_text())
    (folder.path / "run.json").write_text(json.dumps({**record, "id": DECEPTIVE}))
    words = [sys.executable, "-m", "vflops", "export", format, str(folder.path)]
    piped = subprocess.run(words, capture_output=True, check=True).stdout.decode()
    assert "\u202e" in piped or "\\u202e" in piped
    shown = _shown(words)
    assert "\\u202e" in shown
    assert all(line.isprintable() for line in shown.splitlines())


def test_a_terminal_keeps_the_colours_of_the_command_only() -> None:
    text = f"\x1b[1mbold\x1b[0m\r\x1b[K\x1b[?25l{DECEPTIVE}\x1b]0;title\x07\x1bP\x9b2J\t\n"
    program = (
        "import sys; from vflops.cli.terminal.safe_stream import safe_stream;"
        f"out = safe_stream(sys.stdout); print({text!r}, file=out, end='')"
    )
    shown = _shown([sys.executable, "-c", program])
    assert shown.startswith("\x1b[1mbold\x1b[0m\r\x1b[K\x1b[?25l")
    rest = shown.removeprefix("\x1b[1mbold\x1b[0m\r\x1b[K\x1b[?25l").rstrip("\r\n")
    assert rest == "a\\u202eb\\x1b]0;title\\x07\\x1bP\\x9b2J\t"


def _shown(words: list[str]) -> str:
    """Return what a command writes to a terminal."""
    outer, inner = pty.openpty()
    process = subprocess.Popen(words, stdout=inner, stderr=subprocess.DEVNULL)
    os.close(inner)
    data = b""
    while True:
        try:
            part = os.read(outer, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        data += part
    os.close(outer)
    assert process.wait() == 0
    return data.decode()
