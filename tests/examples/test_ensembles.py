"""The examples of frameworks, each as an ensemble of two models."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.cores import needs_two_cores
from tests.support.paths import ROOT
from tests.support.programs import start
from vflops.results.check.findings import Findings

EXAMPLES = {
    "sklearn_digits": ("sklearn",),
    "accelerate_prototypes": ("accelerate",),
    "keras_digits": ("keras", "jax", "sklearn"),
    "flax_sine": ("flax", "optax"),
}
"""The packages that an example imports."""


@needs_two_cores
@pytest.mark.parametrize(
    "name",
    [
        "sklearn_digits",
        pytest.param("accelerate_prototypes", marks=pytest.mark.frameworks),
        pytest.param("keras_digits", marks=pytest.mark.frameworks),
        pytest.param("flax_sine", marks=pytest.mark.frameworks),
    ],
)
def test_an_example_is_trained_twice_and_combined(name: str, tmp_path: Path) -> None:
    missing = [package for package in EXAMPLES[name] if find_spec(package) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install -e '.[dev,examples]'")
    options = ["--config", f"examples/{name}.toml", "--models", "2", "--out", str(tmp_path)]
    options += ["--profile", "tiny", "--set", "micro.benchmarks=[]", "--quiet"]
    process = start(["-m", "vflops", "run", "command", *options], ROOT, os.environ)
    _, errors = process.communicate(timeout=300)
    assert process.wait() in (0, 1), errors
    (path,) = tmp_path.glob("*/score.json")
    score = json.loads(path.read_text())
    qualities = [training["quality"] for training in score["trainings"]]
    assert len(qualities) == 2 and all(training["speed"] for training in score["trainings"])
    (ensemble,) = score["ensembles"]
    assert ensemble["quality_name"] == qualities[0]["name"]
    assert ensemble["sizes"][0]["quality"] == pytest.approx(qualities[0]["achieved"], rel=1e-5)
    assert ensemble["vflops"] > 0
    is_lower = name == "flax_sine"
    assert (ensemble["achieved"] < ensemble["target"]) is is_lower
    failed = {failure.rule for failure in Findings.read(path.with_name("findings.json")).failures}
    assert failed <= {"quiet"}  # other tests may run at the same time
    report = (path.parent / "report.html").read_text()
    assert "2 models" in report
