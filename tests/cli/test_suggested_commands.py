"""Every command that vflops suggests is executed: it runs, and gets further."""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.data_climate import year_folder
from tests.support.data_images import image_folder
from tests.support.data_text import documents, text_folder, write_bin
from tests.support.paths import ROOT
from tests.support.stopped_runs import BEGINS, Outcome, stopped_runs
from vflops.record.folder import latest
from vflops.workloads.contract import registry

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]
IMAGES = "image-classification"
TINY = ("--profile", "tiny")
SMALL_BATCH = ("--set", "train.batch=8")


class Walk:
    """Executes commands and what they suggest, and counts the suggestions."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.command = stopped_runs(folder, monkeypatch)
        self.executed: list[str] = []

    def start(self, *words: object, code: int = 0) -> Outcome:
        """Run a command that a user types."""
        done = self.command(*words)
        assert done.code == code, (words, done.out, done.err)
        return done

    def follow(self, words: list[str], *more: str, code: int = BEGINS) -> Outcome:
        """Run a command that was suggested, in a test with a smaller batch for example."""
        self.executed.append(shlex.join(["vflops", *words]))
        done = self.command(*words, *more)
        assert done.code == code, (words, done.out, done.err)
        return done


executed: list[str] = []


@pytest.fixture
def walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Walk]:
    taken = Walk(tmp_path, monkeypatch)
    yield taken
    assert taken.executed
    print("\n".join(taken.executed))
    executed.extend(taken.executed)


@pytest.fixture(scope="module", autouse=True)
def counted() -> Iterator[None]:
    """Print how many suggestions were executed."""
    yield
    print(f"{len(executed)} suggested commands executed, {len(set(executed))} different ones")


def test_own_images(walk: Walk, tmp_path: Path) -> None:
    image_folder(tmp_path / "my images", train=16, val=4)
    checked = walk.start("data", "check", "my images")
    pack, train = checked.suggested
    walk.follow(train, *TINY, *SMALL_BATCH)
    packed = walk.follow([*pack[:-1], "tiny"], code=0)
    assert walk.follow(packed.next, *SMALL_BATCH).settings is not None
    (folder,) = tmp_path.glob("my images-*")
    verified = walk.start("data", "verify", folder.name)
    walk.follow(verified.next, *TINY, *SMALL_BATCH)
    for data in ("my images", folder.name):
        own = ("--data", data, *SMALL_BATCH)
        for command in ("plan", "run"):
            refused = walk.start(command, IMAGES, *TINY, *own, code=2)
            assert "for example --set target=0.8" in refused.err
        planned = walk.start("plan", IMAGES, *TINY, *own, "--set", "target=0.8")
        assert len(planned.suggested) == 2  # the run, and a short one
        for words in planned.suggested:
            settings = walk.follow(words).settings
            assert settings is not None
            assert settings.workloads[IMAGES]["data"] == data


def test_images_that_cannot_all_be_read(walk: Walk, tmp_path: Path) -> None:
    image_folder(tmp_path / "images", train=16, val=4)
    (tmp_path / "images" / "train" / "cat" / "000.jpg").write_bytes(b"no image")
    checked = walk.start("data", "check", "images", code=1)
    packed = walk.follow(checked.suggested[-1], *TINY, code=0)
    walk.follow(packed.next, *SMALL_BATCH)


def test_text_with_a_separator(walk: Walk, tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    whole = "<|end of text|>".join(documents(300))
    (tmp_path / "text" / "all.txt").write_text(whole)
    checked = walk.start("data", "check", "text", "--separator", "<|end of text|>")
    packed = walk.follow(checked.next, code=0)
    assert "documents" in packed.out
    run = walk.follow(packed.next, *TINY, "--set", "context=32", *SMALL_BATCH)
    assert run.settings is not None
    (data,) = tmp_path.glob("text-*")
    own = ("--data", data.name, "--set", "context=32", *SMALL_BATCH)
    for command in ("plan", "run"):
        refused = walk.start(command, "language-model", *TINY, *own, code=2)
        target = refused.err.partition("for example ")[2].partition(",")[0]
        walk.follow(["run", "language-model", *TINY, *own, *shlex.split(target)])


def test_text_that_is_not_packed_is_planned_as_it_runs(walk: Walk, tmp_path: Path) -> None:
    text_folder(tmp_path / "text", 300)
    own = ("--data", "text", "--set", "held_out=0.2", "--set", "context=32", *SMALL_BATCH)
    refused = walk.start("plan", "language-model", *TINY, *own, code=2)
    target = shlex.split(refused.err.partition("for example ")[2].partition(",")[0])
    planned = walk.follow(["plan", "language-model", *TINY, *own, *target], code=0)
    for words in planned.suggested:
        walk.follow(words)


def test_fields_of_json_lines(walk: Walk, tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    lines = [f'{{"body": "{text}"}}\n' for text in documents(300)]
    (tmp_path / "text" / "all.jsonl").write_text("".join(lines))
    checked = walk.start("data", "check", "text", "--field", "body")
    packed = walk.follow(checked.next, code=0)
    walk.follow(packed.next, *TINY, "--set", "context=32", *SMALL_BATCH)


def test_tokens_with_a_vocabulary(walk: Walk, tmp_path: Path) -> None:
    for name, tokens in (("a_train.bin", 20_000), ("a_val.bin", 4000)):
        write_bin(tmp_path / "tokens" / name, np.arange(tokens) % 300)
    checked = walk.start("data", "check", "tokens", "--vocabulary", 300)
    packed = walk.follow(checked.next, code=0)
    walk.follow(packed.next, *TINY, "--set", "context=32", *SMALL_BATCH)


def test_own_years(walk: Walk, tmp_path: Path) -> None:
    year_folder(tmp_path / "years")
    checked = walk.start("data", "check", "years")
    packed = walk.follow(checked.next, code=0)
    walk.follow(packed.next, *TINY, "--set", "train.batch=2")


@pytest.mark.parametrize("workload", [IMAGES, "extreme-weather", "language-model"])
def test_synthetic_data_that_was_drawn(walk: Walk, workload: str) -> None:
    few: dict[str, tuple[object, ...]] = {
        IMAGES: ("--train", 40, "--val", 20),
        "extreme-weather": ("--frames", 4),
        "language-model": ("--train", 40_000, "--val", 20_000),
    }
    drawn = walk.start("data", "synth", workload, "drawn", *few[workload])
    checked = walk.follow(drawn.next, code=0)
    packed = walk.follow(checked.suggested[0], code=0)
    walk.follow(packed.next, *TINY, "--set", "train.batch=2")


PLANNED: list[tuple[str, ...]] = [
    (IMAGES,),
    (IMAGES, "--scale", "2", "--seed", "3"),
    (IMAGES, "--config", "my file.toml", "--out", "elsewhere"),
    (IMAGES, "--kernels", "--repeat", "2"),
    (IMAGES, "--set", "train.schedule=step", "--set", "train.milestones=2,5"),
    (IMAGES, "--nodes", "2", "--ranks", "2", "--rehearse"),
    ("automl", "--for", "9s"),
    ("extreme-weather",),
    ("language-model", "--set", "context=32"),
    ("command", "--config", "script.toml"),
    (),
]


@pytest.mark.parametrize("options", PLANNED, ids=" ".join)
def test_a_planned_run(walk: Walk, tmp_path: Path, options: tuple[str, ...]) -> None:
    """Also the short run, from which the plan could tell the time."""
    (tmp_path / "my file.toml").write_text("[train]\nepochs = 2\nwarmup_epochs = 0\n")
    script = (ROOT / "examples" / "numpy_softmax.toml").read_text()
    (tmp_path / "script.toml").write_text(script.replace("examples/", f"{ROOT}/examples/"))
    typed = walk.start("run", *options, *TINY, code=BEGINS).settings
    planned = walk.start("plan", *options, *TINY)
    assert walk.follow(planned.next).settings == typed
    if "--rehearse" in options:  # the short run is on the cluster
        return
    for words in {tuple(words) for words in planned.suggested} - {tuple(planned.next)}:
        walk.follow(list(words))


def test_a_workload_of_another_package(walk: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "vflops-digits" / "src")
    spec = importlib.import_module("vflops_digits").digits
    known = {**registry.workloads(), "digits": replace(spec, origin="vflops-digits")}
    monkeypatch.setattr(registry, "workloads", lambda: known)
    planned = walk.start("plan", "digits", *TINY)
    for words in planned.suggested:
        walk.follow(words)


@pytest.fixture(scope="module")
def small_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_folder(tmp_path_factory.mktemp("images"), train=16, val=8)


CHEAP = (
    "--set",
    "train.epochs=2",
    "--set",
    "train.warmup_epochs=0",
    "--set",
    "micro.benchmarks=[]",
)


def test_a_target_that_is_too_easy(
    walk: Walk, vflops: Vflops, small_images: Path, tmp_path: Path
) -> None:
    own = ("--data", small_images, "--set", "target=0.001", *SMALL_BATCH, *CHEAP)
    done = vflops("run", IMAGES, *TINY, *own, "--quiet", COLUMNS="400")
    assert done.returncode == 1, done.stderr
    assert "not met: goal" in done.stdout
    said = Outcome(done.returncode, None, done.stdout, done.stderr)
    again = walk.follow(said.next)
    assert again.settings is not None
    harder = again.settings.workloads[IMAGES]["target"]
    assert 0.1 < harder <= 0.99
    run = latest(tmp_path / "runs")
    assert run is not None
    assert f"--set target={harder:g}" in (run / "report.html").read_text()
    followed = vflops(*said.next, "--quiet", COLUMNS="400")
    assert "goal" not in followed.stdout.partition("checks")[2].partition("report ")[0]


def test_a_target_that_was_missed(walk: Walk, vflops: Vflops, small_images: Path) -> None:
    own = ("--data", small_images, "--set", "target=0.999", *SMALL_BATCH, *CHEAP)
    done = vflops("run", IMAGES, *TINY, *own, "--quiet", COLUMNS="400")
    assert "Traceback" not in done.stderr
    longer = walk.follow(Outcome(done.returncode, None, done.stdout, done.stderr).next)
    assert longer.settings is not None
    assert longer.settings.workloads[IMAGES]["train"]["epochs"] == 4
    assert longer.settings.workloads[IMAGES]["data"] == str(small_images)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_disk_that_is_full(walk: Walk, vflops: Vflops, small_disk: Path) -> None:
    cheap = (*CHEAP, "--set", "count.models=[]")
    done = vflops("run", IMAGES, *TINY, *cheap, "--out", small_disk, "--quiet", COLUMNS="400")
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    words = Outcome(done.returncode, None, done.stdout, done.stderr).suggested[-1]
    assert words[0] == "resume"
    walk.executed.append(shlex.join(["vflops", *words]))
    resumed = vflops(*words, "--quiet")
    assert resumed.returncode in (0, 1), resumed.stderr
