"""Reads, checks and stores the predictions of a script that trains a model of an ensemble."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from vflops.errors import RunFailed
from vflops.metrics.detection_boxes import require_detections, require_truths
from vflops.record.files.npz_arrays import read_npz
from vflops.record.files.regular_file import MAX_BYTES, read_regular
from vflops.record.formats.job_events import Evaluated, Predicted
from vflops.train.ensemble.predictions import (
    KEPT_COLUMNS,
    largest_columns,
    prediction_files,
    write_predictions,
)
from vflops.workloads.command.combined_metric import is_share, kind_of, metric_of, unit_of
from vflops.workloads.command.combined_quality import QualityMeter
from vflops.workloads.command.settings import CommandSettings

FILE = "script-predictions.npz"
"""The name of the file that the script writes, in the folder of the attempt."""
_MAX_CLASS = 1 << 24
"""Class numbers are stored as float32, which has all integers up to this one."""
_SUM_TOLERANCE = 0.01
"""How far the probabilities of a sample may be from 1 in total, as half precision may make them."""
_QUALITY_TOLERANCE = 0.01
"""How far the reported quality may be from that of the predictions, for example by rounding."""
_GUIDE = "docs/how-to/workloads.md, “Train an ensemble of scripts”, shows the arrays"

Array = NDArray[Any]


@dataclass(frozen=True)
class ScriptPredictions:
    """Valid predictions of a script, and the truth that they are compared with."""

    predictions: NDArray[np.float32]
    """Probabilities (samples, classes); with votes, or for numbers, also (samples,); for boxes
    (samples, detections, 6)."""
    truth: tuple[Array, ...]


def store_predictions(
    attempt: Path, settings: CommandSettings, last: Evaluated | None
) -> Predicted:
    """Store the predictions that the script has written; raise ``RunFailed`` if they are unusable.

    ``last`` is the last evaluation that the script reported.
    """
    path = attempt / FILE
    found = read_predictions(path, settings)
    samples = len(found.predictions)
    if last is not None:
        _require_reported(path, settings, found, last)
    stored, columns = found.predictions, 0
    many_classes = stored.ndim == 2 and stored.shape[1] > KEPT_COLUMNS
    if many_classes and metric_of(settings) in ("accuracy", "error"):
        stored, columns = largest_columns(stored), stored.shape[1]
    write_predictions(attempt, 0, np.arange(samples), stored, found.truth, columns=columns)
    path.unlink()  # the stored files have all that is needed
    return Predicted(samples=samples, files=prediction_files(attempt))


def read_predictions(path: Path, settings: CommandSettings) -> ScriptPredictions:
    """Return the predictions in a script's file; raise ``RunFailed`` if they are not valid."""
    kind = kind_of(metric_of(settings))
    names = ("predictions", "labels", "boxes") if kind == "boxes" else ("predictions", "labels")
    arrays = _read(path, names)
    if not arrays["predictions"].ndim or not len(arrays["predictions"]):
        _refuse(path, "predictions has no samples", "write one row per sample that was evaluated")
    counts = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        sizes = ", ".join(f"{name} has {count:,}" for name, count in counts.items())
        _refuse(path, f"its arrays have different numbers of samples: {sizes}", _GUIDE)
    expected = settings.validation
    if expected is not None and counts["predictions"] != expected:
        _refuse(
            path,
            f"it has {counts['predictions']:,} samples, but the setting validation is {expected:,}",
            "predict the whole validation set on the first rank, or correct the setting",
        )
    if kind == "boxes":
        return _boxes(path, arrays)
    if kind == "numbers":
        return _numbers(path, arrays)
    return _classes(path, arrays, settings)


def _read(path: Path, names: tuple[str, ...]) -> Mapping[str, Array]:
    try:
        arrays = read_npz(read_regular(path), max_bytes=MAX_BYTES, names=names)
    except FileNotFoundError:
        raise RunFailed(
            f"the command wrote no predictions to {path} (VFLOPS_PREDICTIONS), so its model cannot "
            "be combined with others",
            hint=f"its script must write them, also after a resume: {_GUIDE}",
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        _refuse(path, str(reason), f"write it with numpy.savez; {_GUIDE}")
    for name, array in arrays.items():
        if array.dtype.kind not in "iufb":
            _refuse(path, f"{name} has the type {array.dtype}: expected numbers", _GUIDE)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            where = tuple(int(index) for index in np.argwhere(~np.isfinite(array))[0])
            _refuse(path, f"{name}{list(where)} is {array[where]}", "write finite numbers only")
    return arrays


def _classes(
    path: Path, arrays: Mapping[str, Array], settings: CommandSettings
) -> ScriptPredictions:
    predictions, labels = arrays["predictions"], arrays["labels"]
    _require_class_numbers(path, "labels", labels, _MAX_CLASS)
    if settings.combine == "vote" and predictions.ndim == 1:
        _require_class_numbers(path, "predictions", predictions, _MAX_CLASS)
        return ScriptPredictions(predictions.astype(np.float32), (labels.astype(np.int64),))
    if predictions.ndim != 2:
        also = ", or (samples,) class numbers" if settings.combine == "vote" else ""
        _refuse(
            path,
            f"predictions has the shape {predictions.shape}: expected (samples, classes){also}",
            "write one probability per class"
            + ("" if also else ", or let the models vote: --set command.combine=vote"),
        )
    _require_class_numbers(path, "labels", labels, predictions.shape[1])
    truth = (labels.astype(np.int64),)
    if settings.combine == "vote":
        return ScriptPredictions(predictions.argmax(1).astype(np.float32), truth)
    _require_probabilities(path, predictions)
    return ScriptPredictions(predictions.astype(np.float32), truth)


def _numbers(path: Path, arrays: Mapping[str, Array]) -> ScriptPredictions:
    predictions, labels = arrays["predictions"], arrays["labels"]
    if predictions.shape != labels.shape:
        _refuse(
            path,
            f"predictions has the shape {predictions.shape}, and labels {labels.shape}: expected "
            "the same shape",
            _GUIDE,
        )
    return ScriptPredictions(predictions.astype(np.float32), (labels.astype(np.float64),))


def _boxes(path: Path, arrays: Mapping[str, Array]) -> ScriptPredictions:
    detections = arrays["predictions"].astype(np.float32)
    labels, boxes = arrays["labels"].astype(np.int64), arrays["boxes"].astype(np.float32)
    try:
        require_detections("predictions", detections)
        require_truths(boxes, labels, classes=_MAX_CLASS, frames=len(detections))
    except ValueError as error:
        _refuse(path, str(error), _GUIDE)
    present = detections[..., 5] >= 0
    if (detections[..., 4][present] < 0).any():
        lowest = detections[..., 4][present].min()
        _refuse(path, f"predictions has the score {lowest:g}", "write scores of 0 or more")
    if not (labels >= 0).any():
        _refuse(path, "it has no true box, so mAP is not defined", "write the boxes of all objects")
    return ScriptPredictions(detections, (labels, boxes))


def _require_class_numbers(path: Path, name: str, values: Array, classes: int) -> None:
    if values.ndim != 1 or values.dtype.kind not in "iu":
        _refuse(
            path,
            f"{name} is {values.dtype} of shape {values.shape}: expected integers (samples,)",
            "write the number of the class of each sample, from 0",
        )
    wrong = values[(values < 0) | (values >= classes)]
    if len(wrong):
        _refuse(
            path,
            f"{name} has the class {wrong[0]}, but classes are 0 to {classes - 1}",
            "number classes from 0, with one column of predictions for each",
        )


def _require_probabilities(path: Path, predictions: Array) -> None:
    remedy = "apply softmax to the outputs of the model, or let the models vote: "
    remedy += "--set command.combine=vote"
    lowest, totals = predictions.min(), predictions.sum(axis=1, dtype=np.float64)
    if lowest < 0:
        _refuse(path, f"predictions has {lowest:g}, which is not a probability", remedy)
    furthest = int(np.abs(totals - 1).argmax())
    if abs(totals[furthest] - 1) > _SUM_TOLERANCE:
        _refuse(
            path, f"the predictions of sample {furthest} have the sum {totals[furthest]:g}", remedy
        )


def _require_reported(
    path: Path, settings: CommandSettings, found: ScriptPredictions, last: Evaluated
) -> None:
    """Raise unless the predictions are those that the script evaluated last."""
    samples = len(found.predictions)
    if samples != last.evaluated:
        _refuse(
            path,
            f"it has {samples:,} samples, but the last evaluation had {last.evaluated:,}",
            "predict the samples that the script evaluates, all on the first rank",
        )
    metric = metric_of(settings)
    meter = QualityMeter(metric, unit_of(settings))
    meter.update(found.predictions, found.truth)
    quality, tolerance = meter.result(), _QUALITY_TOLERANCE
    rounding = tolerance * unit_of(settings) if is_share(metric) else 0.0
    if not math.isclose(quality, last.quality, rel_tol=tolerance, abs_tol=rounding):
        _refuse(
            path,
            f"its {metric} is {quality:.4g}, but the last evaluation reported the "
            f"{settings.quality} {last.quality:.4g}",
            "predict with the model that was evaluated last, in the order of the labels; or name "
            "what the script reports: --set command.combine_quality=NAME",
        )


def _refuse(path: Path, fault: str, hint: str) -> NoReturn:
    raise RunFailed(f"{path} cannot be used: {fault}", hint=hint)
