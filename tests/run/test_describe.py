"""The upper three layers of the system: what the workloads of a run are."""

from __future__ import annotations

from pathlib import Path

import pytest

from vflops.cli import options
from vflops.machine.system import gather
from vflops.record.folder import RunFolder
from vflops.record.formats.system import SystemRecord
from vflops.run import jobs, pipeline
from vflops.run.describe import workload_layers
from vflops.run.observer import RunObserver

UPPER = ("workload implementation", "hyper-parameters", "problem domain")


def prepared(workload: str, *assignments: str) -> list[jobs.PreparedWorkload]:
    settings = options.settings("tiny", None, None, list(assignments), workloads=workload)
    return jobs.prepare(settings, lambda *progress: None)


def test_each_layer_holds_what_is_its_own() -> None:
    given = prepared("image-classification", "target=0.4", "train.epochs=7")
    layers = workload_layers(given, "tiny")
    assert layers.implementation["workload"] == "image-classification"
    assert layers.implementation["network.width"] == 8
    assert layers.hyper_parameters["train.batch"] == 32
    assert layers.hyper_parameters["train.optimizer"] == "sgd"
    problem = ("target", "exponent n", "train.epochs", "data", "training samples", "data classes")
    assert [layers.problem[name] for name in problem] == [0.4, 5, 7, "synthetic", 1024, 4]
    assert "train.ranks" not in {*layers.implementation, *layers.hyper_parameters, *layers.problem}


def test_of_several_workloads_each_fact_names_its_own() -> None:
    layers = workload_layers([*prepared("image-classification"), *prepared("automl")], "tiny")
    assert layers.problem["image-classification train.epochs"] == 8
    assert layers.problem["automl train.epochs"] == 2


def test_a_run_is_described_with_its_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = options.settings(
        "tiny", None, None, ["micro.benchmarks=[]"], workloads="image-classification"
    )

    class StopError(Exception):
        pass

    def stop(*given: object) -> None:
        raise StopError

    monkeypatch.setattr(jobs, "plan", stop)
    monkeypatch.setattr(gather, "load_torch", lambda too: None)  # its facts take seconds
    with pytest.raises(StopError):
        pipeline.start(tmp_path, "image-classification", settings, RunObserver())
    (path,) = tmp_path.iterdir()
    system = SystemRecord.read(RunFolder.open(path).system_file)
    absent = [fact.name for name in UPPER for fact in system.layer(name).facts if fact.reason]
    assert absent == []
    assert system.fact("problem domain", "target").value == 0.78
