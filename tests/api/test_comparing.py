"""``vflops.compare`` gives what ``vflops compare --json`` prints."""

from __future__ import annotations

import json
from pathlib import Path

import pandas
import pytest

import vflops
from tests.support.dated_runs import Dated, dated_run
from vflops.studies.compare.comparing import compare, read_sides

FAST, SLOW = (1.0, 1.01, 0.99), (1.2, 1.21, 1.19)


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    a = dated_run(tmp_path, Dated(0, FAST, torch="2.12.0"))
    b = dated_run(tmp_path, Dated(1, SLOW, name="b"))
    return a.path, b.path


def test_figures_are_compared_as_by_the_command(paths: tuple[Path, Path]) -> None:
    expected = json.loads(compare(read_sides([*map(str, paths)])).to_json())
    found = vflops.compare(*paths)
    for row, figure in zip(found.figures(), expected["figures"], strict=True):
        assert (row["a"], row["b"], row["verdict"]) == (
            figure["base"],
            figure["value"],
            figure["verdict"],
        )
        assert [row["repeats_a"], row["repeats_b"]] == figure["repeats"]
    table = pandas.DataFrame(found.figures()).set_index("name")
    assert table.loc["FLOPS", "verdict"] == "worse"
    assert table.loc["FLOPS", "difference"] == pytest.approx(1 / 1.2 - 1, rel=1e-3)
    assert "FLOPS -16.7 % (worse)" in found.summary
    assert found.warnings == expected["warnings"]
    assert {"layer": "framework", "name": "torch", "a": "2.12.0", "b": "2.13.0"} in (
        found.differences()
    )


def test_a_side_is_a_run_a_path_or_several(
    paths: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = paths
    other = dated_run(tmp_path, Dated(2, SLOW, name="c")).path
    found = vflops.compare(vflops.Run(a), [str(b), other])
    assert found.figures()[0]["repeats_a"] == 3
    monkeypatch.chdir(tmp_path)
    b.rename("vs")  # the command line's separator
    assert vflops.compare(a, "vs").figures() == vflops.compare(a, tmp_path / "vs").figures()


def test_runs_that_cannot_be_compared_are_refused(paths: tuple[Path, Path]) -> None:
    with pytest.raises(vflops.VflopsError, match="is given 2 times"):
        vflops.compare(paths[0], paths[0])
    with pytest.raises(vflops.VflopsError, match="is not a run folder"):
        vflops.compare(paths[0], "nothing")
    with pytest.raises(vflops.VflopsError, match="needs two sides"):
        vflops.compare(paths[0], [])
