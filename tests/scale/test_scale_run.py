"""An experiment from the command to its page, killed in the middle and given again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vflops.cli.scale import Kind, scale
from vflops.errors import UsageError
from vflops.record.folder import RunFolder, latest
from vflops.record.training import JobBegun
from vflops.scale.result import Scale

SMALL = (
    "synthetic.train=128",
    "synthetic.validation=40",
    "train.epochs=1",
    "train.warmup_epochs=0",
)
FOLDER = Path("runs") / "scale-weak-image-classification"
LIMIT_S = 120


def command(*arguments: str) -> list[str]:
    words = [part for each in SMALL for part in ("--set", each)]
    start = [sys.executable, "-m", "vflops", "scale", "image-classification", "--profile", "tiny"]
    return [*start, *words, *arguments]


def wait_for(parent: Path, kind: str) -> None:
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        path = latest(parent)
        if path is not None and RunFolder.open(path).history().events(kind):
            return
        time.sleep(0.05)
    raise AssertionError(f"no {kind} event under {parent}")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where an experiment was killed in its second point and ran again."""
    place = tmp_path_factory.mktemp("experiment")
    words = command("--scales", "1,2")
    process = subprocess.Popen(
        words, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for(place / FOLDER / "2x1", "described")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = Scale.read(place / FOLDER / "scale.json")
    assert [each.figures is None for each in before.points] == [False, True]
    again = subprocess.run(
        words, cwd=place, capture_output=True, text=True, timeout=300, check=False
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert "2 × 1" in again.stdout
    assert "next: open file://" in again.stderr
    yield place


def run_of(place: Path, point: int) -> RunFolder:
    run = Scale.read(place / FOLDER / "scale.json").points[point].run
    return RunFolder.open(place / FOLDER / str(run))


def test_a_complete_point_is_not_run_again_and_a_broken_one_goes_on(place: Path) -> None:
    first, second = (run_of(place, point) for point in (0, 1))
    assert [path.parent.name for path in (first.path, second.path)] == ["1x1", "2x1"]
    assert len(list((place / FOLDER).glob("*/*/run.json"))) == 2
    assert [len(each.history().jobs[0]) for each in (first, second)] == [1, 2]


def test_one_model_runs_on_a_slot_as_large_as_each_of_two(place: Path) -> None:
    cores = len(os.sched_getaffinity(0)) // 2
    histories = [run_of(place, point).history() for point in (0, 1)]
    threads = [event.data["threads"] for each in histories for event in each.events("job")]
    assert threads == [cores] * 3
    events = [event for each in histories for event in each.events("job-begun")]
    begun = [event.payload(JobBegun).where for event in events]
    assert begun[0] == begun[1] != begun[2]  # the first slot, then both


def test_figures_are_complete_and_the_page_is_there(place: Path) -> None:
    found = Scale.read(place / FOLDER / "scale.json")
    assert found.complete
    assert found.quality_name == "top-1 accuracy"
    one, two = (each.figures for each in found.points)
    assert one and two and one.flops and two.flops
    assert one.efficiency == 1
    assert two.efficiency == pytest.approx(two.flops / one.flops / 2)
    assert (one.checks_failed, two.checks_failed) == (0, 0)
    assert "Weak scaling of image-classification" in (place / FOLDER / "scale.html").read_text()


def test_wrong_words_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    for words, said in (
        ({"scales": "1,zero"}, "--scales 1,zero: not whole numbers from 1 up"),
        ({"scale": 2}, "--scale with --kind weak"),
        ({"kind": Kind.TRADE_OFF, "scale": 0}, "--scale 0: not whole numbers from 1 up"),
        ({"kind": Kind.TRADE_OFF, "ranks": 2}, "--ranks 2 with --kind trade-off"),
        ({"on": "slurm"}, "launch.on = slurm and no scale"),
        ({"set_": ["launch.cores_per_rank=4096"]}, "launch.cores_per_rank = 4096"),
    ):
        given: dict[str, Any] = {"profile": "tiny", "out": tmp_path / "e", **words}
        with pytest.raises(UsageError, match=said):
            scale("image-classification", **given)
    assert not list(tmp_path.iterdir())
