"""The three papers in one command each, on a real SLURM whose nodes have GPU device files."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.browser import Browser
from tests.support.slurm_bench import SlurmBench
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.studies.scale.papers import TRAININGS
from vflops.studies.scale.scale_result import Scale

pytestmark = pytest.mark.cluster
GIVEN = (
    "launch.gpus_per_rank=1",  # slots and requests of GPUs, which nothing here can compute on
    "launch.ranks_per_node=2",  # of eight, so that few processes compute at once
    "train.device=cpu",
    "micro.benchmarks=gemm",
    "micro.budget_s=1",
    "train.warmup_epochs=0",
    "train.epochs=1",
    "train.segments=1",
)
SMALL = {
    "image-classification": ("synthetic.train=256", "synthetic.validation=32"),
    "extreme-weather": ("synthetic.train=16", "synthetic.validation=8", "synthetic.test=1"),
    "automl": ("synthetic.train=128", "synthetic.validation=32"),
}


def scaled(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command, for at most half an hour."""
    command = [sys.executable, "-m", "vflops", "scale", *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=1800, check=False
    )


def _jobs(folder: RunFolder) -> list[TrainedJob]:
    contents = Contents(folder)
    return [*contents.training_jobs, *contents.workers]


def _nodes(job: TrainedJob) -> list[str]:
    """The nodes that SLURM gave to a job."""
    return [node.name for node in job.nodes]


@pytest.mark.parametrize(
    ("words", "nodes", "points", "figures"),
    [
        (
            ["image-classification", "--paper", "v3"],
            2,
            7,
            ["Figures 5 and 6", "Figure 9", "Figure 7", "Figure 8"],
        ),
        (["--paper", "v2"], 1, 6, ["Figures 4 and 5", "Figure 1", "Figure 2"]),
        (["--paper", "aiperf", "--for", "12s"], 2, 2, ["Figures 4 and 5", "Table VII"]),
    ],
)
def test_a_paper_ends_on_the_nodes_of_a_cluster_and_is_continued(
    slurm: SlurmBench,
    tmp_path: Path,
    words: list[str],
    nodes: int,
    points: int,
    figures: list[str],
) -> None:
    (tmp_path / "site.toml").write_text('partition = "gpu"\n')
    names = ("automl",) if "aiperf" in words else TRAININGS
    own = [f"{name}.{text}" for name in names for text in SMALL[name]]
    command = [*words, "--profile", "tiny", "--on", "slurm", "--nodes", str(nodes), "--quiet"]
    command += ["--ranks", "2", "--out", "e"]
    command += [word for text in (*GIVEN, *own) for word in ("--set", text)]
    done = scaled(tmp_path, *command)
    assert done.returncode in (0, 1), done.stderr  # 1: seconds of training reach no target
    assert f"{points} of {points} points to run" in done.stdout
    scales = [Scale.read(file) for file in sorted((tmp_path / "e").glob("*/figure-*.json"))]
    assert all(scale.complete and scale.on == "slurm" for scale in scales)
    runs = {path.parent for path in (tmp_path / "e").rglob("run.json")}
    assert len(runs) == points
    widest = 0
    for run in runs:
        folder = RunFolder.open(run)
        assert folder.history().state.complete
        launch = folder.record.settings.launch
        used = Counter(node for job in _jobs(folder) for node in _nodes(job))
        assert (launch.nodes, launch.gpus_per_rank) == (len(used), 1)
        widest = max(widest, len(used))
        assert folder.history(0).events("measurement")  # the ceilings
    assert widest == nodes
    with Browser() as browser:
        page = browser.open(tmp_path / "e" / "paper.html")
        headings = page.texts("h2")
        assert [heading.partition(":")[0] for heading in headings] == [*figures, "Points"]
        assert "A trial of the layout" in " ".join(page.texts(".banner"))
        assert page.errors == []
    again = scaled(tmp_path, *command)
    assert again.returncode == done.returncode
    assert f"0 of {points} points to run" in again.stdout
    assert {path.parent for path in (tmp_path / "e").rglob("run.json")} == runs
