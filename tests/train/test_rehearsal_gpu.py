"""Ranks that share one GPU over NCCL, through the whole program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from vflops.record.folder import RunFolder, latest
from vflops.record.formats.job_events import JobStarted, RanksRehearsed
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no accelerator"),
]

ASSIGNMENTS = ("train.epochs=1", "train.warmup_epochs=0", "count.models=[]", "train.device=cuda:0")


def rehearse(folder: Path, *words: object) -> Contents:
    settings = [word for item in ASSIGNMENTS for word in ("--set", item)]
    command = ["run", "image-classification", "--profile", "tiny", "--rehearse", *settings]
    done = subprocess.run(
        [sys.executable, "-m", "vflops", *command, *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = latest(folder / "runs")
    assert run is not None
    return Contents(RunFolder.open(run))


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("mode", ["data", "sharded"])
def test_ranks_share_one_gpu(tmp_path: Path, ranks: int, mode: str) -> None:
    contents = rehearse(tmp_path, "--ranks", ranks, "--set", f"parallel.mode={mode}")
    (job,) = contents.training_jobs
    events = {event.kind: event for event in job.logs[0].events}
    started = events["job"].payload(JobStarted)
    assert started.device == "cuda"
    assert len({(place.node, place.device, place.id) for place in started.places}) == 1
    assert len(started.places) == ranks
    assert started.places[0].id is not None
    memory = events["rehearsed"].payload(RanksRehearsed)
    assert len(memory.peak_bytes) == ranks
    assert 0 < min(memory.peak_bytes) <= max(memory.peak_bytes) < memory.device_bytes / 2
    (finding,) = (item for item in check(contents).failures if item.rule == "rehearsal")
    assert f"shared cuda:0 of {started.places[0].node}" in finding.evidence


def test_an_ensemble_of_two_nodes_shares_one_gpu(tmp_path: Path) -> None:
    contents = rehearse(tmp_path, "--nodes", 2, "--ranks", 2)
    places = [place for job in contents.training_jobs for place in job.started.places]  # type: ignore[union-attr]
    assert len(places) == 4
    assert len({place.id for place in places}) == 1
