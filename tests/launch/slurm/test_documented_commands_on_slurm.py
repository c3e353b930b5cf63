"""The commands of docs/how-to/cluster.md and scaling.md for SLURM, on a real one."""

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
from vflops.record.readout.contents import Contents
from vflops.results.check.findings import Findings
from vflops.studies.scale.scale_result import Scale

pytestmark = pytest.mark.cluster

ON_SLURM = [
    command
    for command in commands()
    if command.fence.page in (DOCS / "how-to" / "cluster.md", DOCS / "how-to" / "scaling.md")
    and (command.fence.reason == "needs SLURM" or "slurm" in command.words)
]
FIRST_RUN = [command.words for command in ON_SLURM if command.fence.reason == "needs SLURM"]
EXPERIMENTS = [
    command.words
    for command in ON_SLURM
    if command.words[1] == "scale" and "--paper" not in command.words
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


@pytest.mark.parametrize("words", EXPERIMENTS)
def test_an_experiment_of_the_documentation(
    slurm: SlurmBench, tmp_path: Path, words: tuple[str, ...]
) -> None:
    shorter, once = [*words[1:], "--profile", "tiny"], ("train.epochs=1", "train.warmup_epochs=0")
    shorter += [part for setting in (*SMALL, *once) for part in ("--set", setting)]
    process = start(["-m", "vflops", *shorter], tmp_path, os.environ)
    out, err = process.communicate(timeout=400)
    assert process.returncode in (0, 1), f"{words}\n{out}\n{err}"  # 1: no target is reached
    (path,) = (tmp_path / "runs").glob("*/scale.json")
    result = Scale.read(path)
    assert result.complete and result.on == "slurm"
    runs = [Contents(RunFolder.open(run.parent)) for run in path.parent.rglob("run.json")]
    nodes = [{node.name for job in run.training_jobs for node in job.nodes} for run in runs]
    scales = words[words.index("--scales") + 1]
    assert sorted(map(len, nodes)) == [int(number) for number in scales.split(",")]


def test_all_commands_for_slurm_are_known_to_a_test() -> None:
    papers = [command.words for command in ON_SLURM if "--paper" in command.words]
    others = [
        command.words
        for command in ON_SLURM
        if command.words not in (*FIRST_RUN, *EXPERIMENTS, *papers)
    ]
    assert [words[words.index("--paper") + 1] for words in papers] == ["v3", "v2", "aiperf"]
    assert others == [("vflops", "run", "image-classification", "--on", "slurm")]  # with GPUs
