"""What a run may claim: hardware, system, free, or nothing; and which setting made it so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.trained_runs import HandmadeRun, course, job
from vflops.record.folder import RunFolder
from vflops.record.formats.system import LAYERS
from vflops.record.installed_package import PackageRecord, installed_package
from vflops.record.readout.contents import Contents
from vflops.results.check.level import LEVEL_OF, Levels, levels
from vflops.results.check.paper_rules import PaperRules
from vflops.results.check.published_figures import HPCAI500_V2
from vflops.workloads.image_classification.settings import reference

INSTALLED = installed_package().model_copy(update={"extensions": {}})
"""This package, whatever extends it on the machine of the test."""


def found(run: HandmadeRun, changes: dict[str, Any], **train: Any) -> Levels:
    settings = reference().model_dump(mode="json")
    settings["train"].update(train)
    run.plan(
        job(1, settings=reference().model_dump(mode="json")), job(2, settings=settings | changes)
    )
    run.attempt(1, 1000.0, *course(0.8))
    return levels(Contents(run.folder))


@pytest.mark.parametrize(
    ("changes", "train", "claim", "deciding"),
    [
        ({}, {}, "hardware", []),
        ({"data": "/elsewhere", "models": 8}, {"ranks": 8, "batch": 2048}, "hardware", []),
        (  # nothing is generated beside the user's data
            {"data": "/elsewhere", "synthetic": {"classes": 3}},
            {},
            "hardware",
            [],
        ),
        ({}, {"precision": "fp32"}, "hardware", []),
        ({}, {"precision": "mixed-fp8"}, "hardware", []),
        ({}, {"ranks": 4, "communication": {"mode": "torus"}}, "hardware", []),
        (
            {},
            {"ranks": 2, "parallel": {"mode": "sharded"}},
            "system",
            ["train.parallel.mode = sharded (reference data)"],
        ),
        (
            {},
            {"ranks": 2, "communication": {"precision": "int8"}},
            "free",
            ["train.communication.precision = int8 (reference fp32)"],
        ),
        ({}, {"compile": "off"}, "system", ["train.compile = off (reference auto)"]),
        (
            {},
            {"compile": "off", "optimizer": "lamb"},
            "free",
            ["train.optimizer = lamb (reference sgd)"],
        ),
        ({"label_smoothing": 0.0}, {}, "free", ["label_smoothing = 0.0 (reference 0.1)"]),
        ({}, {"ghosts": 2}, "free", ["train.ghosts = 2 (reference 1)"]),
        ({}, {"epochs": 80}, None, []),
        ({"target": 0.7}, {"compile": "off"}, None, ["train.compile = off (reference auto)"]),
    ],
)
def test_the_level_follows_from_the_settings_that_differ(
    handmade_run: HandmadeRun,
    changes: dict[str, Any],
    train: dict[str, Any],
    claim: str | None,
    deciding: list[str],
) -> None:
    levels = found(handmade_run, changes, **train)
    assert levels.claim == claim
    assert levels.reason is None
    assert [str(difference) for difference in levels.deciding] == deciding


@pytest.mark.parametrize(
    ("package", "claim", "deciding"),
    [
        (INSTALLED, "hardware", []),
        (
            PackageRecord(version="0.2.0", sha256="b" * 64),
            "free",
            ["package = bbbbbbbbbbbb, not a known release (reference vflops 0.1.9 as released)"],
        ),
        (None, "free", ["package = not recorded (reference vflops 0.1.9 as released)"]),
    ],
)
def test_changed_code_is_not_at_level_hardware(
    handmade_run: HandmadeRun,
    package: PackageRecord | None,
    claim: str,
    deciding: list[str],
) -> None:
    handmade_run.plan(job(1, settings=reference().model_dump(mode="json")))
    handmade_run.attempt(1, 1000.0, *course(0.8))
    path = handmade_run.folder.path / "run.json"
    update = {"package": package, "versions": {"vflops": "0.1.9"}}
    handmade_run.folder.record.model_copy(update=update).write(path)
    contents = Contents(RunFolder.open(path.parent))
    known = levels(contents)
    assert known.claim == claim
    assert [str(difference) for difference in known.deciding] == deciding
    outcome = PaperRules(HPCAI500_V2).check_level(contents)
    assert outcome.evidence == ": ".join([f"level {claim}", *deciding])


def test_extensions_are_named_because_their_code_is_not_compared(
    handmade_run: HandmadeRun,
) -> None:
    handmade_run.plan(job(1, settings=reference().model_dump(mode="json")))
    handmade_run.attempt(1, 1000.0, *course(0.8))
    extensions = {"ours 1.2: ours": "c" * 64, "theirs 3: theirs": None}
    package = INSTALLED.model_copy(update={"extensions": extensions})
    path = handmade_run.folder.path / "run.json"
    handmade_run.folder.record.model_copy(update={"package": package}).write(path)
    outcome = PaperRules(HPCAI500_V2).check_level(Contents(RunFolder.open(path.parent)))
    names = "ours 1.2: ours (cccccccccccc), theirs 3: theirs (without a hash)"
    assert outcome[:2] == ("pass", f"level hardware; not compared: extensions {names}")


def test_every_layer_is_told(handmade_run: HandmadeRun) -> None:
    levels = found(handmade_run, {"target": 0.7}, compile="off", momentum=0.5)
    told = {
        layer.layer: (layer.level, [d.setting for d in layer.differences])
        for layer in levels.layers
    }
    assert tuple(told) == LAYERS == tuple(LEVEL_OF)
    assert told["framework"] == ("system", ["train.compile"])
    assert told["hyper-parameters"] == ("free", ["train.momentum"])
    assert told["problem domain"] == (None, ["target"])
    assert told["workload implementation"] == ("hardware", [])
    assert levels.code == "free"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"magic": 1}, "the settings of image-classification: magic"),
        ({"train": {"epochs": "many"}}, "the settings of image-classification: train.epochs"),
    ],
)
def test_settings_that_are_not_known_leave_it_open(
    handmade_run: HandmadeRun, changes: dict[str, Any], reason: str
) -> None:
    levels = found(handmade_run, changes)
    assert levels.claim is None
    assert levels.reason is not None
    assert levels.reason.startswith(reason)


def test_a_workload_that_is_not_installed_leaves_it_open(handmade_run: HandmadeRun) -> None:
    handmade_run.plan(job(1, workload="elsewhere"))
    handmade_run.attempt(1, 1000.0, *course(0.8))
    assert levels(Contents(handmade_run.folder)).reason == "unknown workload 'elsewhere'"


@pytest.mark.parametrize(
    ("train", "level", "layers"),
    [
        ({"precision": "mixed-bf16"}, "hardware", []),
        ({"compile": "off"}, "hardware", ["framework"]),
        ({"compile": "off"}, "system", []),
        ({"ghosts": 2, "momentum": 0.5}, "system", ["workload implementation", "hyper-parameters"]),
        ({"epochs": 80}, "system", ["problem domain"]),
    ],
)
def test_the_layers_that_keep_a_run_from_a_level_are_named(
    handmade_run: HandmadeRun, train: dict[str, Any], level: Any, layers: list[str]
) -> None:
    levels = found(handmade_run, {}, **train)
    assert [layer.layer for layer in levels.above(level)] == layers
