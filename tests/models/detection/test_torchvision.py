"""The whole detector agrees with torchvision's with the same weights, if it is installed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.torchvision_names import as_theirs, for_theirs, theirs_of
from vflops.models.detection.detector_design import DetectorDesign
from vflops.models.detection.faster_rcnn import FasterRCNN

pytestmark = pytest.mark.gpu

HEIGHT, WIDTH, CHANNELS, CLASSES = 128, 192, 16, 4
ANCHORS = 3 * sum(-(-HEIGHT // stride) * -(-WIDTH // stride) for stride in (4, 8, 16, 32, 64))
PROPOSALS = 200


@pytest.fixture(scope="module")
def device() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    pytest.importorskip("torchvision", reason="there is no torchvision here")
    return torch.device("cuda")


def detectors(device: torch.device) -> tuple[FasterRCNN, nn.Module]:
    """Ours and torchvision's; both look at everything, so that chance plays no part."""
    from torchvision.models import detection  # type: ignore[import-not-found,unused-ignore]

    torch.manual_seed(3)
    design = DetectorDesign(
        anchor_samples=2 * ANCHORS,
        candidates=2 * PROPOSALS,
        proposals=2 * PROPOSALS,
        regions=4 * (2 * PROPOSALS + 15),
    )
    ours = FasterRCNN(design, classes=CLASSES, channels=CHANNELS, height=HEIGHT, width=WIDTH)
    parts = ours.head
    for head in (parts.proposer.head, parts.regions.head):  # as if trained: scores that differ
        for name, parameter in head.named_parameters():
            if name.startswith(("scores", "deltas")) and parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.1)
    theirs = detection.fasterrcnn_resnet50_fpn(
        weights=None,
        weights_backbone=None,
        num_classes=CLASSES + 1,
        trainable_backbone_layers=5,
        min_size=HEIGHT,
        max_size=WIDTH,
        image_mean=[0.0] * CHANNELS,
        image_std=[1.0] * CHANNELS,
        rpn_batch_size_per_image=2 * ANCHORS,
        rpn_pre_nms_top_n_train=2 * PROPOSALS,
        rpn_post_nms_top_n_train=2 * PROPOSALS,
        rpn_pre_nms_top_n_test=PROPOSALS,
        rpn_post_nms_top_n_test=PROPOSALS,
        box_batch_size_per_image=4 * (2 * PROPOSALS + 15),
    )
    theirs.backbone.body.conv1 = nn.Conv2d(CHANNELS, 64, 7, stride=2, padding=3, bias=False)
    theirs.load_state_dict(theirs.state_dict() | for_theirs(ours))
    return ours.to(device), theirs.to(device)


def batch(device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(5)
    images = torch.randn(2, CHANNELS, HEIGHT, WIDTH, generator=random)
    corner = torch.rand(2, 15, 2, generator=random) * torch.tensor([WIDTH * 0.6, HEIGHT * 0.6])
    side = 10 + torch.rand(2, 15, 2, generator=random) * 60
    far = torch.minimum(corner + side, torch.tensor([float(WIDTH), float(HEIGHT)]))
    boxes = torch.cat([corner, far], -1)
    labels = torch.randint(0, CLASSES, (2, 15), generator=random)
    labels[0, 4:] = -1
    labels[1, 9:] = -1
    boxes[labels < 0] = -1
    lot = torch.rand(2, generator=random)
    return images.to(device), boxes.to(device), labels.to(device), lot.to(device)


def targets(boxes: Tensor, labels: Tensor) -> list[dict[str, Tensor]]:
    """As torchvision wants them: only what is there, and class 0 is the background."""
    return [
        {"boxes": box[label >= 0], "labels": label[label >= 0] + 1}
        for box, label in zip(boxes, labels, strict=True)
    ]


def exact() -> Any:
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=False)


def test_the_losses_are_torchvisions(device: torch.device) -> None:
    ours, theirs = detectors(device)
    images, boxes, labels, lot = batch(device)
    with exact():
        losses = ours.train()(images, boxes, labels, lot)
        expected = theirs.train()(list(images), targets(boxes, labels))
    names = ("loss_objectness", "loss_rpn_box_reg", "loss_classifier", "loss_box_reg")
    wanted = torch.stack([expected[name] for name in names])
    torch.testing.assert_close(losses, wanted, rtol=2e-3, atol=1e-4)
    losses.sum().backward()
    wanted.sum().backward()
    theirs_by_name = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        other = theirs_by_name[theirs_of(name)].grad
        assert parameter.grad is not None and other is not None, name
        own = (
            as_theirs(parameter.grad)
            if name == "head.regions.head.first.weight"
            else parameter.grad
        )
        scale = other.abs().max().clamp(min=1e-6)
        assert ((own - other).abs().max() / scale) < 2e-2, name


def test_the_detections_are_torchvisions(device: torch.device) -> None:
    ours, theirs = detectors(device)
    images, boxes, labels, lot = batch(device)
    with torch.no_grad(), exact():
        for _ in range(3):  # running statistics of batch norm
            ours.train()(images, boxes, labels, lot)
        theirs.load_state_dict(theirs.state_dict() | for_theirs(ours))
        actual = ours.eval()(images, boxes, labels, lot)
        expected = theirs.eval()(list(images))
    for rows, one in zip(actual, expected, strict=True):
        rows = rows[rows[:, 5] >= 0]
        assert abs(len(rows) - len(one["scores"])) <= 1  # one may lie at the least score
        number = min(len(rows), len(one["scores"]))
        assert number > 5
        torch.testing.assert_close(rows[:number, 4], one["scores"][:number], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(rows[:number, :4], one["boxes"][:number], rtol=1e-3, atol=0.05)
        assert (rows[:number, 5] + 1 == one["labels"][:number]).all()
