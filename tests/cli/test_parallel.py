"""Ways to share a model that cannot be: refused with what would fit, and no run folder is made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch import Tensor, nn

from vflops.cli import main
from vflops.machine.system import cpu_share
from vflops.models.resnet import ResNet

IMAGES = ("image-classification", "--profile", "tiny")
MIXED = ("--set", "parallel.mode=mixed")
PIPELINE = ("--set", "parallel.mode=pipeline")
INTERLEAVED = (*PIPELINE, "--set", "parallel.schedule=interleaved")
TENSOR = ("--set", "parallel.mode=model", "--set", "parallel.split=tensor")
SCRIPT = {
    "command.command": "sh train.sh",
    "samples": 10,
    "target": 1,
    "ops_forward": 1,
    "ops_total": 3,
    "command.train.batch": 2,
}
COMMAND = ("command", *(w for name in SCRIPT for w in ("--set", f"{name}={SCRIPT[name]}")))


@pytest.fixture(autouse=True)
def eight_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setattr(cpu_share, "usable_cores", lambda: list(range(8)))


def refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object
) -> str:
    """Return what the command answers to wrong use."""
    monkeypatch.setattr(sys, "argv", ["vflops", "run", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert not Path("runs").exists()
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        ((*PIPELINE,), "shares a model between ranks, but there is only 1", "--ranks 2"),
        (
            ("--ranks", 2, *PIPELINE, "--set", "train.accumulate=3"),
            "batch 32 cannot be divided evenly by 1 copy of the model × 3 accumulation",
            "the nearest valid batch is 33; or train.accumulate 1, 2, 4, 8",
        ),
        (
            ("--ranks", 3, *PIPELINE, "--set", "train.batch=10", "--set", "train.accumulate=2"),
            "3 ranks with schedule 1f1b needs at least as many",
            "train.accumulate=10",
        ),
        (
            ("--ranks", 5, *INTERLEAVED, "--set", "train.accumulate=4"),
            "a number of micro-batches that is a multiple of its ranks",
            "a train.batch that is a multiple of 10",
        ),
        (("--ranks", 2, "--set", "parallel.schedule=interleaved"), "applies only to", "pipeline"),
        (("--ranks", 2, "--set", "parallel.split=tensor"), "applies only to", "mode model"),
        (("--ranks", 2, "--set", "parallel.within=model"), "applies only to", "mode mixed"),
        (
            ("--ranks", 2, *PIPELINE, "--set", "parallel.split=tensor"),
            "applies only to",
            "but the mode is pipeline",
        ),
        (("--ranks", 2, *TENSOR, "--set", "train.precision=mixed-int8"), "whole layers", "sharded"),
        (("--ranks", 4, *MIXED, "--set", "parallel.mesh=2x2"), "mesh = '2x2'", "e.g. [2, 2]"),
        (("--ranks", 2, *PIPELINE), "2 ranks with schedule 1f1b needs at", "train.accumulate=4"),
        (
            ("--ranks", 2, *INTERLEAVED, "--set", "train.accumulate=5"),
            "a number of micro-batches that is a multiple of its ranks",
            "train.accumulate=4",
        ),
        (("--ranks", 6, *MIXED), "with 6 ranks needs parallel.mesh", "[2, 3], [3, 2]"),
        (
            ("--ranks", 4, *MIXED, "--set", "parallel.mesh=[2,3]"),
            "[2, 3] must multiply to 4 ranks",
            "[2, 2]",
        ),
        (("--set", "parallel.mesh=[2,2]"), "applies only to parallel.mode mixed", ""),
        (("--set", "communication.precision=int8"), "in int8 needs 2 or more ranks", "--ranks 2"),
        (
            ("--ranks", 2, "--set", "communication.mode=torus"),
            "2 copies of the model cannot be arranged",
            "use 4, 6, 8",
        ),
        (
            ("--ranks", 4, "--set", "communication.mode=torus", "--set", "communication.near=3"),
            "near 3 does not divide 4 copies",
            "use one of 2",
        ),
        (
            (
                *("--ranks", 4, "--set", "communication.mode=torus"),
                *("--set", "communication.precision=powersgd"),
            ),
            "powersgd supports only all-reduce, not torus",
            "",
        ),
        (
            (
                *("--ranks", 2, *PIPELINE, "--set", "train.accumulate=2"),
                *("--set", "communication.precision=int8"),
            ),
            "parallel.mode pipeline has only one copy",
            "use parallel.mode data or mixed",
        ),
        (
            ("--ranks", 2, "--set", "parallel.mode=sharded", "--set", "communication.mode=torus"),
            "parallel.mode sharded has only one copy",
            "use parallel.mode data or mixed",
        ),
        (("--set", "precision=mixed-int8", "--set", "train.device=cpu"), "int8", "precision"),
        (("--ranks", 3, "--set", "train.batch=33", *TENSOR), "3 ranks cannot share", "2, 4, 8"),
        (
            ("--ranks", 8, *INTERLEAVED, "--set", "train.accumulate=32"),
            "cannot be cut into 16 stages",
            "or fewer",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(map(str, value)),
)
def test_what_ranks_cannot_share_is_refused(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[object, ...],
    error: str,
    hint: str,
) -> None:
    output = refused(capsys, monkeypatch, *IMAGES, *words)
    assert error in output and hint in output


def by_its_values(model: nn.Module, images: Tensor) -> Tensor:
    return images if images.sum() else -images


def test_a_model_that_cannot_be_followed_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ResNet, "forward", by_its_values)
    words = ("--ranks", 2, *PIPELINE, "--set", "train.accumulate=2")
    output = refused(capsys, monkeypatch, *IMAGES, *words)
    assert "torch.fx cannot trace" in output and "traced_whole = True" in output


def test_a_model_without_pairs_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vflops.models.resnet.Bottleneck.channel_pairs", ())
    output = refused(capsys, monkeypatch, *IMAGES, "--ranks", 2, *TENSOR)
    assert "declares no channel_pairs" in output and "split=layers" in output


@pytest.mark.parametrize(
    "word", ["parallel.mode=sharded", "communication.precision=int8", "parallel.mode=model"]
)
def test_a_command_shares_its_work_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    output = refused(capsys, monkeypatch, *COMMAND, "--ranks", 2, "--set", f"command.train.{word}")
    assert f"train.{word.partition('.')[0]} is for models that vflops trains" in output
    assert "leave it out" in output


def test_the_ranks_of_a_search_share_their_data_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--ranks", 2, "--set", "parallel.mode=sharded")
    output = refused(capsys, monkeypatch, "automl", "--profile", "tiny", *words)
    assert "use parallel.mode data" in output
