"""The example without a framework: as a script, and as a benchmark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.paths import ROOT

SCRIPT = ROOT / "examples" / "numpy_softmax.py"
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def reports(**environment: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env={**os.environ, **ONE_THREAD, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    straight = reports(VFLOPS_EPOCHS="2")
    reports(VFLOPS_EPOCHS="1", VFLOPS_CHECKPOINT=str(tmp_path))
    resumed = reports(VFLOPS_EPOCHS="2", VFLOPS_CHECKPOINT=str(tmp_path))
    assert resumed[0] == {"samples": 4000}
    assert [item for item in resumed if "quality" in item] == [straight[-1]]


def test_it_trains_on_the_samples_that_it_is_given(tmp_path: Path) -> None:
    np.save(tmp_path / "few.npy", np.arange(100))
    few = reports(VFLOPS_EPOCHS="1", VFLOPS_INDICES=str(tmp_path / "few.npy"))
    assert few[-1]["samples"] == 100


def test_it_is_benchmarked_by_its_file_of_settings(tmp_path: Path) -> None:
    options = ["--config", "examples/numpy_softmax.toml", "--profile", "tiny"]
    options += ["--set", "micro.benchmarks=[]", "--out", str(tmp_path), "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "vflops", "run", "command", *options],
        cwd=ROOT,
        env={**os.environ, **ONE_THREAD},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*/score.json")
    (training,) = json.loads(path.read_text())["trainings"]
    assert training["samples_trained"] == 6 * 4000
    assert training["quality"]["achieved"] > training["quality"]["target"] == 0.87
    assert training["work"]["source"] == "declared"
    assert training["speed"]["vflops"] > 0
