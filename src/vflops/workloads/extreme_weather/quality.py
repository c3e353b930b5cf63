"""Mean average precision of the detections, from summaries small enough to exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflops.data.climate.field_names import CLASSES, MAX_BOXES
from vflops.metrics.detection import DetectionQuality, Matches, average_precision, match_frames
from vflops.workloads.contract.workload import Inputs, Meter, Summary


class DetectionMeter(Meter):
    """Collects detections and true boxes, which are matched at the end."""

    def __init__(self, shown_frames: Sequence[int], max_detections: int) -> None:
        self._shown = np.asarray(shown_frames, dtype=np.int64)
        empty = (  # a rank may have no frames
            torch.empty(0, max_detections, 6),
            torch.empty(0, MAX_BOXES, 4),
            torch.empty(0, MAX_BOXES, dtype=torch.int64),
            torch.empty(0, dtype=torch.int64),
            torch.empty(0, dtype=torch.bool),
        )
        self._batches: list[tuple[Tensor, ...]] = [empty]

    def update(self, predictions: Tensor, inputs: Inputs, valid: Tensor) -> None:
        """Add a batch of detections; true boxes and frame numbers are among the inputs."""
        _, boxes, labels, _, frames = inputs
        tensors = predictions, boxes, labels, frames, valid
        self._batches.append(tuple(tensor.to("cpu", non_blocking=True) for tensor in tensors))

    def summary(self) -> Summary:
        """Return the matches of this rank, and the few frames that the report shows."""
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()  # wait for the copies
        columns = zip(*self._batches, strict=True)
        detections, boxes, labels, frames, valid = (torch.cat(column).numpy() for column in columns)
        detections, boxes, labels, frames = (
            array[valid] for array in (detections, boxes, labels, frames)
        )
        shown = np.isin(frames, self._shown)
        return {
            **match_frames(detections, boxes, labels, classes=len(CLASSES), frames=frames).arrays(),
            "shown": frames[shown],
            "shown_detections": detections[shown],
            "shown_boxes": boxes[shown],
            "shown_labels": labels[shown],
        }


def detection_quality(summaries: Sequence[Summary]) -> DetectionQuality:
    """Return the quality that follows from the matches of all ranks."""
    names = [field.name for field in fields(Matches)]
    parts = [
        Matches(**{name: np.asarray(summary[name]) for name in names}) for summary in summaries
    ]
    return average_precision(Matches.merge(parts))


def shown_frames(summaries: Sequence[Summary]) -> dict[str, NDArray[Any]]:
    """Return the frames that the report shows, in order, with detections and true boxes."""
    names = ("shown", "shown_detections", "shown_boxes", "shown_labels")
    columns = {name: np.concatenate([np.asarray(s[name]) for s in summaries]) for name in names}
    order = np.argsort(columns["shown"], kind="stable")
    return {
        "frames": columns["shown"][order],
        "detections": columns["shown_detections"][order],
        "truth_boxes": columns["shown_boxes"][order],
        "truth_labels": columns["shown_labels"][order],
    }
