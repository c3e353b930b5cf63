"""What MLflow is told, by a stand-in for its client: the package itself brings 40 others."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.export_runs import QUALITIES, repeated
from tests.support.trained_runs import HandmadeRun
from vflops.errors import RunFailed, UsageError
from vflops.publish.export.to_mlflow import Point, log_run
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents


class Refused(Exception):
    """Stands for ``MlflowException``."""


class Client:
    """Stands for ``MlflowClient``, with the limits of the real one."""

    def __init__(self, tracking_uri: str) -> None:
        self.uri = tracking_uri
        self.params: dict[str, str] = {}
        self.metrics: list[Point] = []
        self.files: list[str] = []
        self.created: dict[str, Any] = {}
        self.ended: dict[str, Any] = {}

    def get_experiment_by_name(self, name: str) -> Any:
        if self.uri == "http://down":
            raise Refused("no route")
        return None

    def create_experiment(self, name: str) -> str:
        return f"experiment {name}"

    def create_run(self, experiment_id: str, **facts: Any) -> Any:
        self.created = {"experiment": experiment_id, **facts}
        return SimpleNamespace(info=SimpleNamespace(run_id="r1"))

    def log_batch(self, run_id: str, params: Any = (), metrics: Any = ()) -> None:
        assert len(params) <= 100
        assert len(metrics) <= 1000
        self.params |= dict(params)
        self.metrics += metrics

    def log_artifact(self, run_id: str, local_path: str) -> None:
        self.files.append(local_path.rpartition("/")[2])

    def set_terminated(self, run_id: str, **facts: Any) -> None:
        self.ended = facts


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """The clients that are made."""
    made: list[Client] = []

    def client(tracking_uri: str) -> Client:
        made.append(Client(tracking_uri))
        return made[-1]

    parts: dict[str, dict[str, Any]] = {
        "mlflow": {"MlflowClient": client},
        "mlflow.entities": {"Param": lambda *pair: pair, "Metric": Point},
        "mlflow.exceptions": {"MlflowException": Refused},
    }
    for name, attributes in parts.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    for part in ("entities", "exceptions"):
        setattr(sys.modules["mlflow"], part, sys.modules[f"mlflow.{part}"])
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    return made


def test_a_run_has_its_settings_curves_figures_and_files(
    handmade_run: HandmadeRun, clients: list[Client]
) -> None:
    contents = repeated(handmade_run, QUALITIES)
    assert log_run(contents, "http://server") == "r1"
    (client,) = clients
    assert client.created["run_name"] == contents.folder.record.id
    assert client.params["profile"] == "tiny"
    qualities = [
        (metric.step, metric.value) for metric in client.metrics if metric.key == "quality"
    ]
    assert qualities == [(10, 0.4), (20, 0.85), (30, 0.88)]
    figures = {each.key: each.value for each in client.metrics}
    assert figures["power_watts"] == pytest.approx(500)
    assert figures["quality_target"] == 0.8
    assert client.files == ["run.json", "system.json"]
    assert client.ended["status"] == "FINISHED"


def test_several_trainings_are_told_apart(trained_folder: RunFolder, clients: list[Client]) -> None:
    log_run(Contents(trained_folder), "sqlite:///x.db")
    keys = {client.key for client in clients[0].metrics}
    assert {"job 1/loss", "job 2/loss", "job 1/valid_flops", "job 2/valid_flops"} <= keys
    assert "loss" not in keys


def test_a_server_that_is_down_is_named(handmade_run: HandmadeRun, clients: list[Client]) -> None:
    with pytest.raises(RunFailed, match="MLflow at http://down did not accept"):
        log_run(repeated(handmade_run, QUALITIES), "http://down")


def test_without_the_package_the_cure_is_to_install_it(
    handmade_run: HandmadeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UsageError) as error:
        log_run(Contents(handmade_run.folder), "mlruns")
    assert error.value.hint == "pip install 'vflops[mlflow]'"
