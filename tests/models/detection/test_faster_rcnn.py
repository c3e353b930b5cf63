"""The whole detector: its shapes, its operation counts, its losses, and that it learns."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vflops.counting.capture import InputSpec, capture
from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.models.detection.detector_design import DetectorDesign, anchor_sizes
from vflops.models.detection.faster_rcnn import FasterRCNN

SMALL = DetectorDesign(
    blocks=(1, 1, 1),
    width=8,
    stem="small",
    stages=(2, 3),
    pooled=False,
    channels=16,
    hidden=32,
    anchors=(((8, 8), (14, 14)), ((20, 20), (28, 28))),
    anchor_samples=32,
    candidates=60,
    proposals=20,
    regions=12,
    region_size=3,
    region_scale=48,
    detections=10,
)


LIMIT = 1e-5
"""For losses and boxes of up to 48 pixels that differ only in the order of sums.

The detector computes in double precision, but rounds the outputs of its heads to float32, by 6e-8:
a code of 4, the largest, moves a side of 48 pixels by 48 · 4 · 6e-8 = 1.2e-5 at most.
"""


def detector(design: DetectorDesign = SMALL, **changes: object) -> FasterRCNN:
    torch.manual_seed(1)
    changed = design.model_validate(design.model_dump() | changes)
    return FasterRCNN(changed, classes=3, channels=4, height=32, width=48)


def frames(count: int = 4) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return bright squares on noise; the class is the bright channel."""
    random = torch.Generator().manual_seed(2)
    images = 0.3 * torch.randn(count, 4, 32, 48, generator=random)
    boxes, labels = torch.full((count, 5, 4), -1.0), torch.full((count, 5), -1)
    for frame in range(count):
        for number in range(2):
            side = int(torch.randint(8, 14, (), generator=random))
            x = int(torch.randint(24 * number, 24 * number + 24 - side, (), generator=random))
            y = int(torch.randint(0, 32 - side, (), generator=random))
            kind = int(torch.randint(0, 3, (), generator=random))
            images[frame, kind, y : y + side, x : x + side] += 2
            boxes[frame, number] = torch.tensor([x, y, x + side, y + side])
            labels[frame, number] = kind
    return images, boxes, labels, torch.rand(count, generator=random)


def in_double(batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(part.double() if part.is_floating_point() else part for part in batch)


def test_in_training_it_gives_four_losses_and_in_evaluation_rows_of_one_size() -> None:
    model, batch = detector(), frames()
    losses = model.train()(*batch)
    assert losses.shape == (4,)
    assert (losses > 0).all()
    rows = model.eval()(*batch)
    assert rows.shape == (4, 10, 6)
    there = rows[..., 5] >= 0
    assert (rows[~there] == torch.tensor([0.0, 0, 0, 0, 0, -1])).all()
    assert (rows[..., 4].diff(dim=1) <= 0).all()
    assert (rows[there][:, 4] > SMALL.least_score).all()
    assert (rows[there][:, :4] >= 0).all()
    assert (rows[there][:, 2] <= 48).all() and (rows[there][:, 3] <= 32).all()


def test_more_detections_than_proposals_are_filled_up() -> None:
    rows = detector(detections=200).eval()(*frames())
    assert rows.shape == (4, 200, 6)
    assert (rows[:, 60:, 5] == -1).all()


def test_truth_does_not_reach_the_detections() -> None:
    model, (images, boxes, labels, lot) = detector().eval(), frames()
    nothing = torch.full_like(boxes, -1), torch.full_like(labels, -1)
    assert torch.equal(model(images, boxes, labels, lot), model(images, *nothing, lot))


def test_a_frame_without_boxes_has_a_finite_loss_and_gradients_everywhere() -> None:
    model, (images, boxes, labels, lot) = detector(), frames()
    losses = model(images, torch.full_like(boxes, -1), torch.full_like(labels, -1), lot)
    assert losses.isfinite().all()
    assert losses[1] == 0 and losses[3] == 0  # no target boxes
    losses.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_padding_of_the_truth_does_not_matter() -> None:
    model, (images, boxes, labels, lot) = detector(), frames()
    losses = model(images, boxes, labels, lot)
    wild = torch.where((labels >= 0)[..., None], boxes, torch.tensor([5.0, 5.0, 20.0, 20.0]))
    assert torch.equal(model(images, wild, labels, lot), losses)


def test_the_lot_alone_decides_what_the_losses_look_at() -> None:
    model, (images, boxes, labels, lot) = detector().double().eval(), in_double(frames())
    model.head.proposer.train()  # batch norm is fixed, so frames are independent
    model.head.training = True
    torch.manual_seed(5)
    first = model(images, boxes, labels, lot)
    torch.manual_seed(6)
    assert torch.equal(model(images, boxes, labels, lot), first)
    assert not torch.equal(model(images, boxes, labels, (lot + 0.4) % 1), first)
    swapped = [3, 1, 0, 2]
    again = model(images[swapped], boxes[swapped], labels[swapped], lot[swapped])
    torch.testing.assert_close(again, first, rtol=LIMIT, atol=LIMIT)


@pytest.mark.parametrize("training", [True, False])
def test_one_compilation_takes_it_whole(training: bool) -> None:
    """A graph break, a host sync or a data-dependent shape would raise an error."""
    model, batch = detector().double().train(training), in_double(frames())
    plain = model(*batch)
    model = detector().double().train(training)
    compiled = torch.compile(model, fullgraph=True, backend="eager", dynamic=False)
    torch.testing.assert_close(compiled(*batch), plain, rtol=LIMIT, atol=LIMIT)


def test_it_learns_bright_squares() -> None:
    model, batch = detector(), frames(8)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        model(*batch).sum().backward()
        optimizer.step()
    rows = model.eval()(*batch)
    images, boxes, labels, _ = batch
    actual = 0
    for frame in range(len(images)):
        for box, label in zip(boxes[frame, :2], labels[frame, :2], strict=True):
            near = (rows[frame, :, :4] - box).abs().amax(1) < 4
            actual += bool((near & (rows[frame, :, 5] == label) & (rows[frame, :, 4] > 0.5)).any())
    assert actual >= 14  # of 16


def test_its_operations_are_those_of_its_layers() -> None:
    """Layer by layer as in HPC AI500's table, for the published design."""
    design, classes, batch = DetectorDesign(), 4, 2
    height, width = 768, 1152
    graph = capture(
        lambda: FasterRCNN(design, classes=classes, channels=16, height=height, width=width),
        [
            InputSpec((16, height, width)),
            InputSpec((15, 4)),
            InputSpec((15,), "int64"),
            InputSpec(()),
        ],
        name="detector",
        batch=batch,
        loss=lambda losses: losses.sum(),
    )
    counted = count(graph, convention("hpcai500"))
    forward = {row.name: row.ops.forward // batch for row in counted.by_layer}
    cells = [(height // stride) * (width // stride) for stride in (4, 8, 16, 32, 64)]
    assert forward["head.proposer.head.conv"] == 2 * 9 * 256 * 256 * sum(cells)
    assert forward["head.proposer.head.scores"] == 2 * 256 * 3 * sum(cells)
    assert forward["head.proposer.head.deltas"] == 2 * 256 * 12 * sum(cells)
    for level, stage in enumerate((256, 512, 1024, 2048)):
        assert forward[f"head.pyramid.lateral.{level}"] == 2 * stage * 256 * cells[level]
        assert forward[f"head.pyramid.output.{level}"] == 2 * 9 * 256 * 256 * cells[level]
    assert forward["head.regions.head.first"] == 512 * 256 * 49 * 1024
    assert forward["head.regions.head.second"] == 512 * 1024 * 1024
    assert forward["head.regions.head.scores"] == 512 * 1024 * (classes + 1)
    assert forward["head.regions.head.deltas"] == 512 * 1024 * (classes + 1) * 4
    body = sum(ops for name, ops in forward.items() if name.startswith("body"))
    layers = sum(
        ops for name, ops in forward.items() if name.startswith(("head.pyramid.", "head.proposer"))
    )
    heads = sum(ops for name, ops in forward.items() if name.startswith("head.regions.head"))
    whole = sum(forward.values())
    # Outside of layers: additions in the pyramid; matching and sampling count nothing.
    assert 0 < whole - body - layers - heads < 1e-4 * whole


def test_a_design_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 5, one for each level"):
        DetectorDesign(anchors=anchor_sizes((32, 64)))
    with pytest.raises(ValueError, match=r"add the last, 4, to stages \[1, 2\]"):
        DetectorDesign(stages=(1, 2), pooled=False, anchors=anchor_sizes((32, 64)))
    with pytest.raises(ValueError, match="at least 1 item"):
        DetectorDesign(stages=())
    with pytest.raises(ValueError, match="at least 1 item"):
        DetectorDesign(anchors=((),) * 5)
    with pytest.raises(ValueError, match="ascending numbers from 1 to 4"):
        DetectorDesign(stages=(2, 5))
