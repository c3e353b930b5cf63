"""Nodes of the user's own allocation join a run, by the command of docs/how-to/cluster.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ensemble_runs import SMALL
from tests.support.markdown import fences, inline_code
from tests.support.paths import DOCS
from tests.support.slurm_bench import SlurmBench
from vflops.record.folder import RunFolder, latest
from vflops.record.formats.node import NodeRecord, node_files

pytestmark = pytest.mark.cluster
PAGE = DOCS / "how-to" / "cluster.md"
(JOIN,) = (code for code in inline_code(PAGE) if code.startswith("srun") and "join" in code)
LEAD = next(
    line
    for fence in fences(PAGE)
    for line in fence.text.splitlines()
    if line.startswith("vflops run") and "--on join" in line
)


def test_srun_in_an_allocation_joins_every_node(slurm: SlurmBench, tmp_path: Path) -> None:
    settings = " ".join(f"--set {text}" for text in (*SMALL, "train.epochs=2"))
    lead = LEAD.replace("--nodes 4", f"--nodes 2 --profile tiny {settings}")
    assert lead != LEAD and lead.endswith("&")
    script = f"mkdir -p runs\n{lead}\nlead=$!\n{JOIN}\nwait $lead"
    done = subprocess.run(
        ["salloc", "-N2", "-c2", "--exclusive", "bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode in (0, 1), said  # 1: a rule is not met
    path = latest(tmp_path / "runs")
    assert path is not None, said
    folder = RunFolder.open(path)
    assert all(folder.ended(job) for job in (1, 2)), said
    nodes = {
        NodeRecord.read(file).name
        for job in (1, 2)
        for file in node_files(folder.logged_attempts(job)[-1])
        if file.suffix == ".json"
    }
    assert nodes == set(re.findall(r"(\bn\d) has joined", said)) and len(nodes) == 2
