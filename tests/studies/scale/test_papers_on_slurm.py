"""The three papers in one command each, on a real SLURM whose nodes have GPU device files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import Browser
from tests.support.sample_parts import Vflops
from tests.support.slurm_bench import SlurmBench
from vflops.record.folder import RunFolder
from vflops.studies.scale.scale_result import Scale

pytestmark = pytest.mark.cluster
GIVEN = (
    "launch.gpus_per_rank=1",  # slots and requests of GPUs, which nothing here can compute on
    "train.device=cpu",
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


@pytest.mark.parametrize(
    ("paper", "points", "figures"),
    [
        ("v3", 12, ["Figures 5 and 6", "Figure 9", "Figure 7", "Figure 8"]),
        ("v2", 12, ["Figures 4 and 5", "Figure 1", "Figure 2"]),
        ("aiperf", 2, ["Figures 4 and 5", "Table VII"]),
    ],
)
def test_a_paper_ends_on_two_nodes_and_is_continued(
    slurm: SlurmBench, vflops: Vflops, tmp_path: Path, paper: str, points: int, figures: list[str]
) -> None:
    (tmp_path / "site.toml").write_text('partition = "gpu"\n')
    names = ("automl",) if paper == "aiperf" else ("image-classification", "extreme-weather")
    own = [f"{name}.{text}" for name in names for text in SMALL[name]]
    words = [word for text in (*GIVEN, *own) for word in ("--set", text)]
    if paper == "aiperf":
        words += ["--for", "12s"]
    command = ("scale", "--paper", paper, "--profile", "tiny", "--on", "slurm", "--nodes", 2)
    command = (*command, "--ranks", 2, "--out", tmp_path / "e", "--quiet", *words)
    done = vflops(*command)
    assert done.returncode in (0, 1), done.stderr  # 1: seconds of training reach no target
    assert f"{points} of {points} points to run" in done.stdout
    scales = [Scale.read(file) for file in sorted((tmp_path / "e").glob("*/figure-*.json"))]
    assert all(scale.complete and scale.on == "slurm" for scale in scales)
    runs = {path.parent for path in (tmp_path / "e").rglob("run.json")}
    assert len(runs) == points
    for run in runs:
        folder = RunFolder.open(run)
        assert folder.history().state.complete
        launch = folder.record.settings.launch
        assert (launch.nodes, launch.gpus_per_rank) == (2, 1)
        assert folder.history(0).events("measurement")  # the ceilings
    with Browser() as browser:
        page = browser.open(tmp_path / "e" / "paper.html")
        headings = page.texts("h2")
        assert [heading.partition(":")[0] for heading in headings] == figures
        assert page.errors == []
    again = vflops(*command)
    assert again.returncode == done.returncode
    assert f"0 of {points} points to run" in again.stdout
    assert {path.parent for path in (tmp_path / "e").rglob("run.json")} == runs
