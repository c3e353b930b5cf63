"""The ceilings of the nodes of a real SLURM: measured before training, and enough for a ranking."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ensemble_runs import ended
from tests.support.programs import start
from tests.support.slurm_bench import NODES, SlurmBench
from tests.support.ssh_keygen import needs_ssh_keygen
from vflops.record.folder import RunFolder
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.score.scoring import score

pytestmark = pytest.mark.cluster

SPANNING = ("--models", "2", "--ranks", "2", "--set", "launch.ranks_per_node=1")
"""Two models of two nodes each."""
ABOUT_THE_SIZE = {"epochs", "target", "published-data"}
"""Rules of the papers that only their own problem can meet."""


def quiet_nodes(folder: Path) -> None:
    """Hide the load of other tests from the nodes: they would not count as quiet."""
    (folder / "sitecustomize.py").write_text(
        "from vflops.machine.host import HostLoad\nHostLoad.others_share = lambda self: 0.0\n"
    )
    python = folder / "python"
    paths = f"export PYTHONPATH={shlex.quote(str(folder))}:$PYTHONPATH"
    python.write_text(f'#!/bin/bash\n{paths}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (folder / "site.toml").write_text(f'python = "{python}"\n')


@needs_ssh_keygen
def test_an_ensemble_on_four_nodes_is_valid_signed_and_ranked(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    quiet_nodes(tmp_path)
    words = ["run", "image-classification", "--profile", "tiny", "--on", "slurm", *SPANNING]
    words += ["--set", "micro.budget_s=10"]
    process = start(["-m", "vflops", *words], tmp_path, os.environ)
    folder = ended(process, tmp_path)
    assert_measured(folder)
    assert_described(folder)
    contents = Contents(folder)
    unmet = {failure.rule for failure in check(contents, "hpcai500-v3").failures}
    assert unmet == ABOUT_THE_SIZE
    scored = score(contents)
    assert all(training.mfu.value for training in scored.trainings)
    assert all(model.bound for model in scored.models)
    sign(folder, tmp_path / "key")
    ranked = vflops("ranking", str(folder.path.parent), "--site", str(tmp_path / "site"))
    assert "1 result ranked" in ranked


def assert_measured(folder: RunFolder) -> None:
    contents = Contents(folder)
    assert {node.node for node in contents.measured_nodes} == set(NODES)
    assert sum(bool(node.full) for node in contents.measured_nodes) == 1  # all are of one kind
    for node in contents.measured_nodes:
        assert {item.benchmark for item in node.quick if item.value} == {"gemm", "memory"}
    measured = {(item.benchmark, item.case): item for item in contents.measurements}
    assert ("gemm", "peak") in measured and ("convolution", "forward") in measured
    between_ranks = measured["all-reduce", "gloo-2-ranks-2-nodes"]
    assert {trial.setting["nodes"] for trial in between_ranks.tried} == {"n1, n2", "n3, n4"}
    assert measured["all-reduce", "gloo-4-ranks-4-nodes"].value
    pairs = measured["point-to-point", "gloo-pairs"]
    assert pairs.value and pairs.tried  # a pair may run out of time on a busy machine
    assert not list((folder.path / "nodes").glob("exchange-*"))
    begun = contents.history.jobs[0][0].events
    kinds = [event.kind for event in begun]
    assert kinds.index("node-measured") < kinds.index("job-trained")


def assert_described(folder: RunFolder) -> None:
    system = SystemRecord.read(folder.system_file)
    assert system.node in NODES
    assert system.submitted_from
    assert system.fact("operating system", "scheduler").value == "slurm"


def sign(folder: RunFolder, key: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    vflops("sign", str(folder.path), "--key", str(key))
    vflops("verify", str(folder.path))


def vflops(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "vflops", *words], check=True, capture_output=True, text=True
    )
    return done.stdout
