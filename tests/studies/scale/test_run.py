"""An experiment from the command to its page, one that had been begun before."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from vflops.cli import options
from vflops.cli.train.scale import Kind, scale
from vflops.errors import UsageError
from vflops.launch.placement import Node
from vflops.record.folder import RunFolder
from vflops.studies.scale.axis import axis_of
from vflops.studies.scale.experiment import Experiment
from vflops.studies.scale.point_figures import EnsembleFigures
from vflops.studies.scale.scale_result import Scale, Size

SMALL = (
    "synthetic.train=128",
    "synthetic.validation=40",
    "train.epochs=1",
    "train.warmup_epochs=0",
    "launch.cores_per_rank=1",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an experiment whose one point had been begun before."""
    place = tmp_path_factory.mktemp("experiment") / "e"
    given = ["micro.benchmarks=[]", *SMALL]
    base = options.settings("tiny", None, None, given, workloads="image-classification")
    made = Experiment.create(place, "image-classification", axis_of("weak"), [Size(1, 1)], base)
    folder = RunFolder.create(place / "1x1", made.workload, made.point_settings(Size(1, 1)))
    with folder.start_attempt(job=0) as log:
        log.write("start", workload="image-classification")
    said = StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        scale("image-classification", profile="tiny", scales="1", set_=[*SMALL], out=place)
    assert "point 1 of 1: 1 model × 1 rank" in said.getvalue()
    assert "\n1 × 1      1 " in said.getvalue()
    assert "next: open the curves in a browser:\nfile://" in said.getvalue()
    for headline, _ in Scale.read(place / "scale.json").warnings:  # its training takes seconds
        assert f"warning: {headline}: " in said.getvalue()
    return place


def run_of(place: Path) -> RunFolder:
    (run,) = (place / "1x1").glob("*/run.json")
    return RunFolder.open(run.parent)


def test_a_point_that_was_begun_goes_on(place: Path) -> None:
    folder = run_of(place)
    found = Scale.read(place / "scale.json")
    assert found.points[0].run == f"1x1/{folder.path.name}"
    assert len(folder.history().jobs[0]) == 2


def test_one_model_has_its_slot_and_no_more(place: Path) -> None:
    (event,) = run_of(place).history().events("job")
    assert event.data["threads"] == 1


def test_figures_are_complete_and_the_page_is_there(place: Path) -> None:
    found = Scale.read(place / "scale.json")
    assert found.quality_name == "top-1 accuracy"
    (own,) = (figures for _, figures in found.completed(EnsembleFigures))
    assert own.flops and own.window_s > 0
    assert (own.efficiency, own.checks_failed, own.partial) == (1, 0, False)
    assert "Weak scaling: image-classification" in (place / "scale.html").read_text()


def test_wrong_words_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    training, searching = "image-classification", "automl"
    trade: dict[str, Any] = {"kind": Kind.TRADE_OFF}
    cases: tuple[tuple[str, dict[str, Any], str], ...] = (
        (training, {"scales": "1,zero"}, "--scales 1,zero: expected integers of 1 or more"),
        (training, {"scale": 2}, "--scale 2 does not apply to --kind weak"),
        (training, {"workers": "1,2"}, "--workers 1,2 does not apply to --kind weak"),
        (training, {"for_": "6s"}, "--for 6s does not apply to --kind weak"),
        (training, {"kind": Kind.WORKERS}, "--kind workers does not apply to image-classification"),
        (training, {**trade, "scale": 0}, "--scale 0: expected integers of 1 or more"),
        (training, {**trade, "scale": 4, "scales": "3"}, "3 models do not divide the 4 slots"),
        (training, {**trade, "scales": "x"}, "--scales x: expected integers of 1 or more"),
        ("command", {"scales": "1,2"}, "the workload command needs command"),
        ("command", {"kind": Kind.KERNELS, "scales": "1"}, "the workload command needs command"),
        (training, {**trade, "ranks": 2}, "--ranks 2 does not apply to --kind trade-off"),
        (training, {"on": "slurm"}, "--scales is needed with launch.on = slurm"),
        (training, {"set_": ["launch.cores_per_rank=4096"]}, "launch.cores_per_rank = 4096"),
        (training, {"precisions": "fp33"}, "unknown training precision 'fp33' in --precisions"),
        (training, {"variant": ["a b=seed=2"]}, "'a b' is not a valid folder name"),
        (training, {"variant": ["a"], "precisions": "fp32"}, "--precisions fp32 does not apply"),
        (
            training,
            {"kind": Kind.WEAK, "variant": ["a"]},
            "--variant a does not apply to --kind weak",
        ),
        (
            training,
            {"precisions": "fp32", "ranks": 2},
            "--ranks 2 does not apply to --kind precisions",
        ),
        (
            training,
            {"kind": Kind.OPTIMISATIONS, "on": "slurm"},
            "--ranks is needed with launch.on = slurm",
        ),
        (
            searching,
            {"precisions": "fp32"},
            "--kind precisions does not apply to automl, which is a search",
        ),
        (searching, {"scales": "1,2"}, "--scales 1,2 does not apply to --kind workers"),
        (searching, {"workers": "0"}, "--workers 0: expected integers of 1 or more"),
        (searching, {"repeat": 2}, "--repeat 2 does not apply to --kind workers"),
        (searching, {"kind": Kind.WEAK}, "--kind weak does not apply to automl, which is a search"),
        (searching, {"for_": "soon"}, "'soon' is not a duration"),
        (
            "language-model",
            {"kind": Kind.FRAMEWORKS},
            "--kind frameworks does not apply to language-model, which is trained with PyTorch",
        ),
        (
            training,
            {"kind": Kind.KERNELS, "ranks": 2},
            "--ranks 2 does not apply to --kind kernels",
        ),
    )
    for workload, words, said in cases:
        given: dict[str, Any] = {"profile": "tiny", "out": tmp_path / "e", **words}
        with pytest.raises(UsageError, match=said):
            scale(workload, **given)
    assert not list(tmp_path.iterdir())


class Stopped(Exception):
    """Instead of an experiment."""


@pytest.mark.parametrize(
    ("workload", "words", "expected"),
    [
        ("automl", {"for_": "6s"}, ["1x1", "2x1", "4x1"]),
        ("automl", {"ranks": 2}, ["1x2", "2x2"]),
        ("automl", {"on": "slurm"}, ["1x1", "2x1", "4x1"]),
        ("image-classification", {}, ["1x1", "2x1", "4x1"]),
        ("image-classification", {"kind": Kind.TRADE_OFF}, ["6x1", "3x2", "2x3", "1x6"]),
        (
            "image-classification",
            {"kind": Kind.TRADE_OFF, "scale": 64, "scales": "8,4,1"},
            ["8x8", "4x16", "1x64"],
        ),
        (
            "image-classification",
            {"kind": Kind.OPTIMISATIONS, "scales": "1,2"},
            [
                *("original/1x3", "mixed/1x3", "compression/1x3", "mixed+compression/1x3"),
                *("original/2x3", "mixed/2x3", "compression/2x3", "mixed+compression/2x3"),
            ],
        ),
        (
            "image-classification",
            {"kind": Kind.DATA_PARALLEL, "scales": "2", "variant": ["plain", "b=seed=2"]},
            ["plain/1x2", "b/1x2"],
        ),
        (
            "image-classification",
            {"kind": Kind.BAGGING_VS_DATA, "ranks": 2},
            ["1x2", "2x2", "1x4"],
        ),
        ("extreme-weather", {"kind": Kind.KERNELS}, ["1x1", "1x2", "1x4"]),
        (
            "image-classification",
            {"variant": ["plain", "int8=communication.precision=int8"], "ranks": 2},
            ["plain/1x2", "int8/1x2"],
        ),
        (
            "image-classification",
            {"precisions": "mixed-bf16,fp32", "scales": "1,4"},
            ["fp32/1x1", "mixed-bf16/1x1", "fp32/1x4", "mixed-bf16/1x4"],
        ),
        (
            "image-classification",
            {"kind": Kind.PRECISIONS, "scales": "1"},
            ["fp32/1x1", "mixed-bf16/1x1"],
        ),
        (
            "image-classification",
            {"kind": Kind.PRECISIONS, "scales": "1", "set_": ["train.precision=mixed-fp16"]},
            ["fp32/1x1", "mixed-fp16/1x1"],
        ),
    ],
)
def test_points_are_those_that_fit_unless_they_are_given(
    workload: str,
    words: dict[str, Any],
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nodes of four and of two slots: here, or of an allocation that is held."""
    made: list[Any] = []

    def of(*arguments: Any) -> None:
        made.extend(arguments)
        raise Stopped

    places = [Node("a", 4), Node("b", 2)]
    monkeypatch.setattr("vflops.launch.nodes.usable_nodes", lambda launch, device, ranks: places)
    monkeypatch.setattr("vflops.launch.nodes.known_nodes", lambda launch, device: places)
    monkeypatch.setattr("vflops.launch.slurm.slurm_launcher.current_allocation", lambda: object())
    monkeypatch.setattr("vflops.studies.scale.experiment.Experiment.create", of)
    with pytest.raises(Stopped):
        scale(workload, profile="tiny", **words)
    own = {"variant": "optimisations", "precisions": "precisions"}
    default = next((own[key] for key in words if key in own), "weak")
    kind = words.get("kind", "workers" if workload == "automl" else default)
    assert made[0] == Path("runs") / f"scale-{kind}-{workload}"
    assert [str(size) for size in made[3]] == expected
    if "for_" in words:
        assert made[4].workloads["automl"]["search"]["duration_s"] == 6
