"""The papers' commands of docs/how-to/scaling.md, on a real SLURM with GPU device files."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.browser import Browser
from tests.support.markdown import commands
from tests.support.paths import DOCS
from tests.support.sample_parts import Vflops
from tests.support.slurm_bench import SlurmBench
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
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
TARGETS = (
    "image-classification.target=0.5",
    "extreme-weather.target=0.01",
    "automl.target=0.5",
)
DATA = {
    "IMAGENET": "image-classification --train 256 --val 32 --classes 4",
    "CLIMATE": "extreme-weather --years 3 --frames 16",
}
"""What the documentation calls the folders of data, and how smaller ones are drawn."""
SIDE = 16
"""Pixels of the images of a search of profile tiny, which reads packed images only."""


def documented(paper: str) -> list[str]:
    """Return the options of the command of the documentation for a paper."""
    (words,) = (
        command.words
        for command in commands()
        if command.fence.page == DOCS / "how-to" / "scaling.md"
        and {"--paper", paper, "slurm"} <= set(command.words)
    )
    return list(words[2:])


def smaller(words: list[str], nodes: int, only: str | None) -> list[str]:
    """Return a command with fewer nodes, less time and, if ``only`` is given, one workload."""
    changed: list[str] = [] if only is None else [only]
    for option, value in zip(words[::2], words[1::2], strict=True):
        value = {"--nodes": str(nodes), "--for": "12s"}.get(option, value)
        if option != "--data" or only is None or value.startswith(f"{only}="):
            changed += [option, value]
    return changed


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
    ("paper", "only", "nodes", "points", "figures"),
    [
        (
            "v3",
            "image-classification",
            2,
            7,
            ["Figures 5 and 6", "Figure 9", "Figure 7", "Figure 8"],
        ),
        ("v2", None, 1, 6, ["Figures 4 and 5", "Figure 1", "Figure 2"]),
        ("aiperf", None, 2, 2, ["Figures 4 and 5", "Table VII"]),
    ],
)
def test_a_paper_ends_on_the_nodes_of_a_cluster_and_is_continued(
    slurm: SlurmBench,
    vflops: Vflops,
    tmp_path: Path,
    paper: str,
    only: str | None,
    nodes: int,
    points: int,
    figures: list[str],
) -> None:
    (tmp_path / "site.toml").write_text('partition = "gpu"\n')
    words = smaller(documented(paper), nodes, only)
    used_data = [folder for folder in DATA if any(word.endswith(f"={folder}") for word in words)]
    names = [word.split("=")[0] for word in words if word.endswith(tuple(used_data))]
    assert names
    for name, folder_name in zip(names, used_data, strict=True):
        workload, *options = DATA[folder_name].split()
        source = "drawn" if name == "automl" else folder_name
        made = [vflops("data", "synth", workload, source, *options)]
        if name == "automl":
            made += [vflops("data", "pack", source, folder_name, "--short-side", SIDE)]
        assert [done.returncode for done in made] == [0] * len(made), made
    own = [text for text in TARGETS if text.split(".")[0] in names]
    command = [*words, "--profile", "tiny", "--quiet", "--ranks", "2", "--out", "e"]
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
