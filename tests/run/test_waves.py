"""More models than a real SLURM has nodes for: one allocation after the other."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.ensemble_runs import ended, started
from tests.support.slurm_bench import SlurmBench
from vflops.record.formats.job_events import Ensembled
from vflops.record.readout.contents import Contents
from vflops.results.score.scoring import score


def test_models_in_waves_have_an_allocation_a_wave(slurm: SlurmBench, tmp_path: Path) -> None:
    for node in ("n2", "n3", "n4"):
        slurm.drain(node)
    settings = ("--set", "synthetic.train=64", "--set", "launch.cores_per_rank=2")
    process = started(tmp_path, "--on", "slurm", "--models", "2", "--waves", *settings)
    folder = ended(process, tmp_path)
    history = folder.history()
    assert history.events("ensemble")[-1].payload(Ensembled).jobs == (1, 2)
    scripts = [path.read_text() for path in sorted(folder.path.glob("allocation-*.sh"))]
    assert [re.findall(r"(?m)^until_given_up (\d+) ", text) for text in scripts] == [["1"], ["2"]]
    assert [event.data["job"] for event in history.events("job-begun")] == [1, 2]
    assert not history.events("job-lost")
    (scored,) = score(Contents(folder)).ensembles
    assert scored.waves and not scored.partial
    assert slurm.run("squeue", "-h") == ""
