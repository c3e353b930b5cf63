"""The matrix of machines: what it counts, and rows that cannot be made here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tools import test_machines
from tools.machine_rows import ROWS, Row


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the logs, which is not the developer's."""
    monkeypatch.setattr(test_machines, "FOLDER", tmp_path)
    return tmp_path


def test_the_tests_of_all_rows_exist() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert [path for row in ROWS for path in row.tests if not (ROOT / path).exists()] == []


def test_a_row_runs_in_its_surroundings_and_counts_what_failed(logs: Path) -> None:
    tests = logs / "test_surroundings.py"
    tests.write_text(
        "import os, pytest\n"
        "def test_word(): assert os.environ['WORD'] == 'a row'\n"
        "def test_here(): assert 'Prüfstand' in os.getcwd()\n"
        "def test_wrong(): assert 'WORD' not in os.environ\n"
        "def test_absent(): pytest.skip('nothing here')\n"
    )
    row = Row("surroundings", (), "export WORD='a row'", checkout="a Prüfstand")
    result = test_machines.run(row, [str(tests)])
    assert (result.passed, result.failed, result.skipped) == (2, 1, 1), result.note
    assert "test_wrong" in (logs / "surroundings.log").read_text()


def test_a_row_that_cannot_be_made_is_listed_with_the_reason(logs: Path) -> None:
    result = test_machines.run(Row("impossible", (), "echo no such core >&2; false"), ["tests"])
    assert str(result).split(maxsplit=1) == ["impossible", "not run: no such core"]
    assert result.passed == result.failed == 0


def test_tests_that_cannot_start_are_a_failure(logs: Path) -> None:
    result = test_machines.run(Row("broken", (), "set -- false"), ["tests"])
    assert result.failed == 1


def test_an_unknown_row_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert test_machines.main(["umask"]) == 2
    assert "umask-077" in capsys.readouterr().err
