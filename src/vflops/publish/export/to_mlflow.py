"""Export to MLflow: settings, figures, curves and files of a run.

MLflow's own client writes them, so every store and log-in method that it supports works. It is an
extra because it installs 40 packages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from vflops.config.flatten import flatten
from vflops.errors import RunFailed, UsageError
from vflops.publish.export.scored_passes import QUANTITIES, passes
from vflops.record.readout.contents import Contents
from vflops.results.score.unscored import is_rehearsal

_BATCH_LIMITS = {"params": 100, "metrics": 1000}
"""How many entities MLflow accepts in one call."""
_MAX_PARAMETER_LENGTH = 6000
"""The maximum length of a parameter in characters."""
_FILES = ("run.json", "system.json", "score.json", "findings.json", "report.html")


class Point(NamedTuple):
    """One value of a metric, with the fields of MLflow's ``Metric``."""

    key: str
    value: float
    timestamp: int
    """Unix time in milliseconds."""
    step: int


def log_run(contents: Contents, uri: str) -> str:
    """Write the run to the MLflow server or folder ``uri``, and return its id there."""
    mlflow = _import_mlflow()
    if "://" not in uri and uri != "databricks":
        # Newer versions refuse a folder unless this is set; the user has asked for one.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    try:
        return _log(mlflow, mlflow.MlflowClient(tracking_uri=uri), contents)
    except (mlflow.exceptions.MlflowException, OSError) as error:
        raise RunFailed(
            f"MLflow at {uri} did not accept {contents.folder.path}: {error}",
            hint="check the address and that you are logged in",
        ) from error


def _import_mlflow() -> Any:
    try:
        import mlflow
        import mlflow.entities
        import mlflow.exceptions
    except ImportError as error:
        raise UsageError(
            "the export to MLflow needs its client, which is not installed",
            hint="pip install 'vflops[mlflow]'",
        ) from error
    return mlflow


def _log(mlflow: Any, client: Any, contents: Contents) -> str:
    folder = contents.folder
    record = folder.record
    name = f"vflops {record.workload}"
    experiment = client.get_experiment_by_name(name)
    began_ms = _unix_ms(record.created_utc)
    run: str = client.create_run(
        experiment.experiment_id if experiment else client.create_experiment(name),
        start_time=began_ms,
        run_name=record.id,
        tags={
            "vflops.run": record.id,
            "vflops.version": record.versions.get("vflops") or "",
            **({"vflops.rehearsal": "yes"} if is_rehearsal(contents) else {}),
        },
    ).info.run_id
    parameters = [
        mlflow.entities.Param(key, str(value)[:_MAX_PARAMETER_LENGTH])
        for key, value in flatten(record.settings.model_dump(mode="json")).items()
    ]
    curves = list(_curves(contents))
    end_ms = max((point.timestamp for point in curves), default=began_ms)
    metrics = [mlflow.entities.Metric(*point) for point in (*curves, *_figures(contents, end_ms))]
    for kind, entities in (("params", parameters), ("metrics", metrics)):
        for batch in _batches(entities, _BATCH_LIMITS[kind]):
            client.log_batch(run, **{kind: batch})
    for path in (folder.path / name for name in _FILES):
        if path.is_file():
            client.log_artifact(run, str(path))
    status = "FINISHED" if contents.state.complete else "FAILED"
    client.set_terminated(run, status=status, end_time=end_ms)
    return run


def _curves(contents: Contents) -> Iterator[Point]:
    """Yield loss, learning rate and quality of each training run by step."""
    for job in contents.training_jobs:
        prefix = _prefix(contents, job.record.job)
        names = {"loss": "loss", "learning_rate": "learning rate", "quality": "quality"}
        for event in (event for log in job.logs for event in log.events):
            if event.kind in ("progress", "evaluation"):
                for key, name in names.items():
                    value = event.data.get(key)
                    if value is not None:
                        step = int(event.data["step"])
                        yield Point(prefix + name, float(value), _unix_ms(event.utc), step)


def _figures(contents: Contents, end_ms: int) -> Iterator[Point]:
    """Yield the figures that the run scored."""
    for scored in passes(contents):
        prefix = f"{scored.kind} {scored.repeat}/"
        if scored.job is not None:
            prefix = _prefix(contents, scored.job)
        for quantity in QUANTITIES:
            value = scored.figures.get(quantity.name)
            if value is not None and quantity.key != "quality":  # quality is exported as a curve
                yield Point(prefix + quantity.metric, float(value), end_ms, 0)


def _prefix(contents: Contents, job: int) -> str:
    """Return the prefix of a job's metrics; empty if the run has only one job."""
    return f"job {job}/" if len(contents.training_jobs) > 1 else ""


def _batches(entities: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (entities[start : start + size] for start in range(0, len(entities), size))


def _unix_ms(utc: str) -> int:
    return round(1000 * datetime.fromisoformat(utc).timestamp())
