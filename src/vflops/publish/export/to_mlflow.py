"""MLflow: a run as a run there, with its settings, figures, curves and files.

Its own client does the talking, so that every store and every way to log in works that works for
it; it is an extra because it brings 40 packages.
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

_AT_ONCE = {"params": 100, "metrics": 1000}
"""What MLflow takes in one call, at the most."""
_LONGEST = 6000
"""Characters of a parameter."""
_FILES = ("run.json", "system.json", "score.json", "findings.json", "report.html")


class Point(NamedTuple):
    """A value of a metric, as MLflow's ``Metric`` takes it."""

    key: str
    value: float
    timestamp: int
    """Unix time, ms."""
    step: int


def log_run(contents: Contents, to: str) -> str:
    """Write the run to the MLflow at ``to``, a URI or a folder; gives its id there."""
    mlflow = _package()
    if "://" not in to and to != "databricks":
        # The user asks for a folder, which newer versions want to be asked for twice.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    try:
        return _logged(mlflow, mlflow.MlflowClient(tracking_uri=to), contents)
    except (mlflow.exceptions.MlflowException, OSError) as error:
        raise RunFailed(
            f"MLflow at {to} did not take {contents.folder.path}: {error}",
            hint="check the address and that you are logged in there",
        ) from error


def _package() -> Any:
    try:
        import mlflow
        import mlflow.entities
        import mlflow.exceptions
    except ImportError as error:
        raise UsageError(
            "an export to MLflow needs its client, which is not installed",
            hint="pip install 'vflops[mlflow]'",
        ) from error
    return mlflow


def _logged(mlflow: Any, client: Any, contents: Contents) -> str:
    folder = contents.folder
    record = folder.record
    name = f"vflops {record.workload}"
    known = client.get_experiment_by_name(name)
    began_ms = _ms(record.created_utc)
    run: str = client.create_run(
        known.experiment_id if known else client.create_experiment(name),
        start_time=began_ms,
        run_name=record.id,
        tags={"vflops.run": record.id, "vflops.version": record.versions.get("vflops") or ""},
    ).info.run_id
    parameters = [
        mlflow.entities.Param(key, str(value)[:_LONGEST])
        for key, value in flatten(record.settings.model_dump(mode="json")).items()
    ]
    curves = list(_curves(contents))
    end_ms = max((point.timestamp for point in curves), default=began_ms)
    metrics = [mlflow.entities.Metric(*each) for each in (*curves, *_figures(contents, end_ms))]
    for kind, found in (("params", parameters), ("metrics", metrics)):
        for some in _parts(found, _AT_ONCE[kind]):
            client.log_batch(run, **{kind: some})
    for path in (folder.path / each for each in _FILES):
        if path.is_file():
            client.log_artifact(run, str(path))
    status = "FINISHED" if contents.state.complete else "FAILED"
    client.set_terminated(run, status=status, end_time=end_ms)
    return run


def _curves(contents: Contents) -> Iterator[Point]:
    """Loss, learning rate and quality of each training, by step."""
    for job in contents.trained:
        lead = _lead(contents, job.record.job)
        names = {"loss": "loss", "learning_rate": "learning rate", "quality": "quality"}
        for event in (event for log in job.logs for event in log.events):
            if event.kind in ("progress", "evaluation"):
                for key, name in names.items():
                    value = event.data.get(key)
                    if value is not None:
                        step = int(event.data["step"])
                        yield Point(lead + name, float(value), _ms(event.utc), step)


def _figures(contents: Contents, end_ms: int) -> Iterator[Point]:
    """What the run scored, once."""
    for it in passes(contents):
        lead = f"{it.kind} {it.repeat}/" if it.job is None else _lead(contents, it.job)
        for each in QUANTITIES:
            value = it.figures.get(each.name)
            if value is not None and each.name != "quality":  # its curve has it
                yield Point(lead + each.metric, float(value), end_ms, 0)


def _lead(contents: Contents, job: int) -> str:
    """What tells one training from others, where there are several."""
    return f"job {job}/" if len(contents.trained) > 1 else ""


def _parts(found: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (found[start : start + size] for start in range(0, len(found), size))


def _ms(utc: str) -> int:
    return round(1000 * datetime.fromisoformat(utc).timestamp())
