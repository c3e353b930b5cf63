"""The first run of docs/how-to/cluster.md, command by command, on a real SLURM."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.ensemble_runs import SMALL
from tests.support.markdown import commands
from tests.support.paths import DOCS
from tests.support.programs import start
from tests.support.slurm_bench import SlurmBench
from vflops.record.folder import RunFolder, latest
from vflops.results.check.findings import Findings

pytestmark = pytest.mark.cluster

FIRST_RUN = [
    command.words
    for command in commands()
    if command.fence.page == DOCS / "how-to" / "cluster.md"
    and command.fence.reason == "needs SLURM"
]


def small(words: tuple[str, ...]) -> list[str]:
    """Return the command with the smallest profile and, if it takes settings, few samples."""
    changed = ["tiny" if word == "gpu" else word for word in words[1:]]
    settings = [*SMALL[1:], "micro.budget_s=2", "train.epochs=2"]
    if changed != list(words[1:]):
        changed += [part for setting in settings for part in ("--set", setting)]
    return changed


def test_the_first_run_of_the_documentation(slurm: SlurmBench, tmp_path: Path) -> None:
    said = {}
    for words in FIRST_RUN:
        process = start(["-m", "vflops", *small(words)], tmp_path, os.environ)
        out, err = process.communicate(timeout=400)
        allowed = (0, 1) if words[1] == "run" else (0,)  # 1: a rule is not met
        assert process.returncode in allowed, f"{words}\n{out}\n{err}"
        said[words[1]] = out + err
    assert list(said) == ["preflight", "plan", "run", "report"]
    assert "4 nodes" in said["preflight"]
    path = latest(tmp_path / "runs")
    assert path is not None
    folder = RunFolder.open(path)
    assert [len(folder.history().events("finished", job=job)) for job in (1, 2, 3, 4)] == [1] * 4
    failed = {failure.rule for failure in Findings.read(folder.findings_file).failures}
    assert failed <= {"quiet"}  # other tests may run at the same time
    assert (path / "report.html").is_file()
