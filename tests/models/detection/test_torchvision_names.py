"""Our detector has the parameters of torchvision's, by its names; checked without torchvision.

torchvision_parameters.json holds the names and shapes of the state dict of torchvision 0.26's
``fasterrcnn_resnet50_fpn`` with five classes.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.torchvision_names import for_theirs
from vflops.models.detection.detector_design import DetectorDesign
from vflops.models.detection.faster_rcnn import FasterRCNN

THEIRS = Path(__file__).with_name("torchvision_parameters.json")


def test_names_and_shapes_are_those_of_torchvision() -> None:
    ours = FasterRCNN(DetectorDesign(), classes=4, channels=3, height=128, width=192)
    shapes = {name: list(tensor.shape) for name, tensor in for_theirs(ours).items()}
    assert shapes == json.loads(THEIRS.read_text(encoding="utf-8"))
