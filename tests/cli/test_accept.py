"""``vflops accept`` as a user starts it: exit codes, files, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.accept_runs import THROUGHPUT, repeats
from tests.support.sample_parts import Vflops


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [run.path for run in repeats(tmp_path, 1.0, 1.001, 0.999, memory=2e10)]


def test_a_machine_is_accepted_by_a_reference_of_its_runs(
    tmp_path: Path, runs: list[Path], vflops: Vflops
) -> None:
    written = vflops("accept", "--write", "r.toml", *runs, "--contract", "No. 7")
    assert written.returncode == 0, written.stderr
    assert "next: vflops accept --against r.toml" in written.stderr
    own = vflops("accept", "--against", "r.toml", *runs)
    assert own.returncode == 4 and "the reference was written from this run" in own.stdout
    good = [run.path for run in repeats(tmp_path, 1.0, 1.001, 0.999, name="g", memory=2e10)]
    done = vflops("accept", "--against", "r.toml", *good, "--out", "o")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Accepted: all" in done.stdout
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == [
        "acceptance.html",
        "acceptance.json",
        "acceptance.xml",
    ]
    document = json.loads((tmp_path / "o" / "acceptance.json").read_text())
    assert (document["schema"], document["verdict"]) == ("vflops.acceptance/1", "accepted")
    slow = [run.path for run in repeats(tmp_path, 1.2, 1.21, 1.19, name="b", memory=2e10)]
    rejected = vflops("accept", "--against", "r.toml", *slow, "--lines")
    assert rejected.returncode == 1
    lines = rejected.stdout.splitlines()
    assert lines[0] == "verdict: rejected"
    assert any(line.startswith(f"{THROUGHPUT}: ") for line in lines)


def test_a_run_folder_can_be_the_reference(runs: list[Path], vflops: Vflops) -> None:
    done = vflops("accept", "--against", runs[0], *runs[1:], "--tolerance", "0.2")
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_chosen_figures_are_promised(tmp_path: Path, runs: list[Path], vflops: Vflops) -> None:
    words = ("accept", "--write", "r.toml", *runs, "--only")
    assert vflops(*words, "memory.*").returncode == 0
    assert (tmp_path / "r.toml").read_text().count("[[figure]]") == 1
    refused = vflops(*words, "gem.*")
    assert refused.returncode == 2
    assert "no figure that matches gem.*" in refused.stderr and "memory.copy" in refused.stderr


def test_one_run_is_undecided_with_an_exit_code_of_its_own(
    runs: list[Path], vflops: Vflops
) -> None:
    vflops("accept", "--write", "r.toml", runs[0])
    refused = vflops("accept", "--against", "r.toml", runs[1], "--tolerance", "0.5")
    assert refused.returncode == 2
    assert "--tolerance is for a reference that is made from runs" in refused.stderr
    done = vflops("accept", "--against", "r.toml", runs[1])
    assert done.returncode == 4
    assert "at least 3 repeats are needed" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "needs either --against or --write"),
        (("--write", "r.toml"), "--write r.toml needs good runs"),
        (("--against", "none.toml"), "cannot read none.toml"),
        (("--against", "x", "--write", "y"), "needs either --against or --write"),
        (("--against", "x", "--tolerance", "5"), "--tolerance 5: '5' is not a share"),
    ],
)
def test_wrong_usage_names_the_remedy(words: tuple[str, ...], message: str, vflops: Vflops) -> None:
    done = vflops("accept", *words)
    assert done.returncode == 2 and message in done.stderr
