"""The commands of docs/how-to/scaling.md that need no cluster, with little to train."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.automl_runs import SMALL as SMALL_SEARCH
from tests.support.ensemble_runs import SMALL
from tests.support.markdown import Command, commands
from tests.support.paths import DOCS
from tests.support.programs import start
from vflops.studies.scale.scale_result import Scale

pytestmark = pytest.mark.cluster

EXPERIMENTS = [
    command
    for command in commands()
    if command.fence.page == DOCS / "how-to" / "scaling.md" and "slurm" not in command.words
]
SHORTER = {"1h": "8s", "5": "2"}
"""Values of ``--for`` and ``--seeds``."""
SMALLER = {
    "image-classification": (*SMALL, "train.epochs=1", "train.warmup_epochs=0"),
    "automl": SMALL_SEARCH,
}


def smaller(words: tuple[str, ...]) -> list[str]:
    """Return the command with less to train, on a machine that is too small for its points."""
    shorter = [SHORTER.get(word, word) for word in words[1:]]
    if "--paper" in words:
        shorter.insert(1, "image-classification")  # of the workloads of the paper
    else:
        shorter += ["--profile", "tiny"]
    settings = [part for text in SMALLER[shorter[1]] for part in ("--set", text)]
    return [*shorter, *settings, "--rehearse", "--quiet"]


@pytest.mark.parametrize("command", EXPERIMENTS, ids=str)
def test_an_experiment_of_the_documentation_ends(command: Command, tmp_path: Path) -> None:
    process = start(["-m", "vflops", *smaller(command.words)], tmp_path, os.environ)
    out, err = process.communicate(timeout=400)
    assert process.returncode in (0, 1), out + err  # 1: a rule is not met, or no target is reached
    runs = tmp_path / "runs"
    found = [*runs.glob("*/scale.json"), *runs.rglob("figure-*.json")]
    assert found, out + err
    results = [Scale.read(path) for path in found]
    assert all(result.complete for result in results), out + err
    if "--workers" in command.words:
        assert [point.jobs for point in results[0].points] == [1, 2, 4]
    if "--variant" in command.words:
        assert {point.variant for point in results[0].points} == {"plain", "int8", "torus"}
