"""Commands that run as jobs, for tests of the command workload."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from vflops.config.settings import CountSettings, MicroSettings, Settings
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.score.score_file import TrainingScore
from vflops.results.score.training_score import training_scores
from vflops.run import pipeline
from vflops.run.observer import RunObserver
from vflops.workloads.contract.run_settings import load, profile

GOOD = """
say(samples=0)
say(samples=60, loss=1.5)
say(phase="evaluation")
say(samples=60, quality=0.7, evaluated=20)
say(samples=100, loss=0.5)
say(samples=100, quality=0.9, evaluated=20)
"""
HEADER = """
import json, os, sys, time
def say(**report):
    print(json.dumps(report))
"""
DECLARED = {
    "samples": 50,
    "target": 0.8,
    "bounds": [0, 1],
    "ops_forward": 1000,
    "ops_total": 3000,
}


def script(folder: Path, text: str) -> str:
    """Return the command line of a script that may use ``say``."""
    path = folder / "script.py"
    path.write_text(HEADER + text)
    return shlex.join([sys.executable, str(path)])


def settings(command: str | None, **changes: Any) -> Settings:
    """Return the settings of a run of one command, without ceilings."""
    section: dict[str, Any] = {**DECLARED, **changes}
    train = {"batch": 10, **section.pop("train", {})}
    section = {name: value for name, value in section.items() if value is not None}
    base = profile("tiny", ["command"])
    base = base.model_copy(
        update={"count": CountSettings(models=()), "micro": MicroSettings(benchmarks=())}
    )
    own = {**base.workloads["command"], **section}
    own["train"] = {**own["train"], **train}
    if command is not None:
        own["command"] = command
    return load(base.model_copy(update={"workloads": {"command": own}}), None, [])


def run(folder: Path, text: str, **changes: Any) -> RunFolder:
    """Run the script as a complete run."""
    chosen = settings(script(folder, text), **changes)
    return pipeline.start(folder / "runs", "command", chosen, RunObserver())


def scored(folder: RunFolder) -> TrainingScore:
    """Return the score of the run's only job."""
    (score,) = training_scores(Contents(folder))
    return score
