"""Workloads by name, the built-in ones and those of a package that is really installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vflops.errors import UsageError
from vflops.workloads.contract.registry import suite, workload, workloads

EXAMPLE = ROOT / "examples" / "vflops-digits"


def test_the_suite_leaves_out_what_needs_its_user() -> None:
    assert "image-classification" in suite()
    assert "command" in workloads()
    assert "command" not in suite()


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        workload("image-clasification")
    assert caught.value.hint == "did you mean image-classification?"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the example package was installed, without a network."""
    for name in ("pip", "hatchling"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed here")
    target = tmp_path_factory.mktemp("site")
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", "-q", *offline, "--target", str(target)]
    environment = {name: v for name, v in os.environ.items() if not name.startswith("PIP_")}
    done = subprocess.run(
        [*command, str(EXAMPLE)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return target


def run(site: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    paths = [str(site), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )


def test_another_packages_workload_is_listed_with_its_origin(site: Path, tmp_path: Path) -> None:
    lines = [
        " ".join(line.split()) for line in run(site, tmp_path, "vflops", "list").stdout.splitlines()
    ]
    start, end = lines.index("workloads"), lines.index("models")
    listed = lines[start:end]
    assert "digits a small network reads digits of 8×8 pixels (from vflops-digits)" in listed
    assert any(line.startswith("image-classification") for line in listed)


def test_another_packages_workload_runs(site: Path, tmp_path: Path) -> None:
    options = ("--profile", "tiny", "--set", "micro.benchmarks=[]", "--quiet")
    done = run(site, tmp_path, "vflops", "run", "digits", *options)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("runs/*/score.json")
    (training,) = json.loads(path.read_text())["trainings"]
    assert training["workload"] == "digits"
    assert training["complete"]
    assert training["quality"]["achieved"] > training["quality"]["target"]
    work = training["work"]
    assert (work["source"], work["rules"]) == ("counted", "executed")
    first, second = 2 * 64 * 128, 2 * 128 * 10  # the images need no gradient
    assert work["ops_total"] == 2 * first + 3 * second


def test_another_packages_tests_are_inherited(site: Path, tmp_path: Path) -> None:
    options = ("-q", "-p", "no:cacheprovider", "-n0", "-k", "not trains_and_scores")
    done = run(site, tmp_path, "pytest", *options, str(EXAMPLE / "tests"))
    assert done.returncode == 0, done.stdout
