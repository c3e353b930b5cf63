"""``vflops accept`` as a user starts it: exit codes, files, and what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.accept_runs import (
    THROUGHPUT,
    only,
    reference,
    repeats,
    seeded,
    under_test,
)
from tests.support.dated_runs import Dated
from tests.support.sample_parts import Vflops
from vflops.cli.results.accept import _folded, _next, _show
from vflops.studies.accept.judging import judge
from vflops.studies.accept.reference import Judgement


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


def test_a_run_folder_can_be_the_reference(
    tmp_path: Path, runs: list[Path], vflops: Vflops
) -> None:
    good = repeats(tmp_path / "good", 1.0, name="good")
    done = vflops("accept", "--against", good[0].path, *runs, "--tolerance", "0.2")
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
    assert "next: vflops accept --against r.toml --max-repeats 10" in done.stderr
    assert "sign" not in done.stderr
    page = next(Path(runs[0]).parent.glob("runs/accept-r/acceptance.html")).read_text()
    assert "nothing to sign" in page and "For the supplier" not in page


def test_evidence_that_is_incomplete_ends_with_its_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = repeats(tmp_path, 1.0, 1.001)
    made = only(reference(*good), THROUGHPUT)
    unfinished = seeded(tmp_path, Dated(5, (1.5,), seed=9, ends=False))
    misspelled = made.figure[0].model_copy(update={"name": "speed"})
    nodes = made.model_copy(update={"judgement": Judgement(nodes=2)})
    for judged, remedy in (
        (judge(made, under_test(*good, unfinished)), "next: vflops check "),
        (judge(made.model_copy(update={"figure": (misspelled,)}), under_test(*good)), "next: C A "),
        (judge(nodes, under_test(*good)), "next: C A NODE=RUN"),
    ):
        assert judged.verdict == "incomplete"
        _next(judged, tmp_path, "C", "A")
        said = capsys.readouterr().err
        assert remedy in said and "sign" not in said


def test_a_second_judgement_says_what_it_replaces_or_is_refused(
    tmp_path: Path, runs: list[Path], vflops: Vflops
) -> None:
    good = [run.path for run in repeats(tmp_path, 1.0, 1.001, 0.999, name="g", memory=2e10)]
    vflops("accept", "--write", "r.toml", *runs)
    first = vflops("accept", "--against", "r.toml", *good)
    assert "two pages to print and sign" in first.stderr and "replaced" not in first.stderr
    second = vflops("accept", "--against", "r.toml", *good[:2])
    former = "replaced the former outcome in runs/accept-r: accepted, by 3 runs"
    assert former in second.stderr
    vflops("accept", "--write", "r.toml", *runs[:2])
    refused = vflops("accept", "--against", "r.toml", *good)
    assert refused.returncode == 2
    assert "the outcome of another reference (r: it was written from other runs)" in refused.stderr
    assert "--out DIR" in refused.stderr


def test_a_reference_that_cannot_be_decided_is_warned_of(
    tmp_path: Path, runs: list[Path], vflops: Vflops
) -> None:
    assert "warning" not in vflops("accept", "--write", "r.toml", *runs).stderr
    noisy = [run.path for run in repeats(tmp_path, 1.0, 1.4, 0.7, name="b", memory=2e10)]
    written = vflops("accept", "--write", "r.toml", *noisy)
    text = (tmp_path / "r.toml").read_text()
    needed = re.search(rf'name = "{THROUGHPUT}"\n# .* needs about (\d+) repeats', text)
    assert needed and int(needed[1]) > 10
    assert "more repeats than max_repeats = 10" in written.stderr
    assert f"{THROUGHPUT} ({needed[1]})" in written.stderr and "memory.copy" not in written.stderr
    enough = vflops("accept", "--write", "r.toml", *noisy, "--max-repeats", "1000")
    assert "warning" not in enough.stderr
    assert "max_repeats = 1000" in (tmp_path / "r.toml").read_text()


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_names_and_limits_stay_whole_on_a_narrow_terminal(
    columns: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("vflops.cli.terminal.console.output_width", lambda: columns)
    folders = repeats(tmp_path, 1.0, 1.001, 0.999)
    made = judge(only(reference(*folders), THROUGHPUT, tolerance=0.05), under_test(*folders))
    name = "convolution.weight-gradient.tf32"
    speed = made.figures[0].model_copy(update={"name": name, "unit": "FLOPS"})
    _show(made.model_copy(update={"figures": (speed,)}))
    header, line = capsys.readouterr().out.splitlines()[:2]
    assert line.startswith(f"{name} ") and line.rstrip().endswith("accepted")
    assert "limit" in header and f"≥ {speed.threshold:.1f} FLOPS" in line
    assert ("bounds" in header) == (columns > 80)


def test_a_name_that_does_not_fit_breaks_between_its_parts() -> None:
    folded = _folded("convolution.weight-gradient.tf32 on node17.example.org", 30)
    assert folded.split("\n") == [
        "convolution.weight-gradient.",
        "tf32 on node17.example.org",
    ]


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
