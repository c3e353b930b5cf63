"""Both stages of the detector agree with plain loops, with small samples in the losses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support import detection_reference as plain
from vflops.models.detection.detector_design import DetectorDesign
from vflops.models.detection.ground_truth import GroundTruth
from vflops.models.detection.proposals import Proposer
from vflops.models.detection.regions import Regions

HEIGHT, WIDTH, CLASSES, IMAGES = 32, 48, 3, 8
DESIGN = DetectorDesign(
    blocks=(1, 1, 1),
    stem="small",
    stages=(2, 3),
    pooled=False,
    channels=3,
    hidden=16,
    anchors=(((8, 8), (10, 10), (8, 12)), ((18, 18), (20, 20), (16, 24))),
    anchor_samples=10,
    candidates=60,
    proposals=24,
    regions=12,
    region_size=2,
    region_scale=20,
    detections=10,
)


def changed(**changes: object) -> DetectorDesign:
    return DESIGN.model_validate(DESIGN.model_dump() | changes)


class Given(nn.Module):
    """A head that returns given outputs, whatever its input."""

    def __init__(self, *said: object) -> None:
        super().__init__()
        self.said = said

    def forward(self, _: object) -> tuple[object, ...]:
        return self.said


def random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def near(boxes: Tensor, chance: torch.Generator, spread: float) -> Tensor:
    """Return boxes with each end moved by about ``spread`` of a side, at least a pixel inside."""
    sides = (boxes[..., 2:] - boxes[..., :2]).repeat_interleave(2, -1)[..., [0, 2, 1, 3]]
    moved = boxes + spread * sides * torch.randn(boxes.shape, generator=chance).double()
    start = torch.minimum(moved[..., :2].clamp(min=0), torch.tensor([WIDTH - 2.0, HEIGHT - 2.0]))
    end = torch.minimum(moved[..., 2:], torch.tensor([float(WIDTH), float(HEIGHT)]))
    return torch.cat([start, torch.maximum(end, start + 1)], -1)


def truths(seed: int = 1) -> tuple[GroundTruth, Tensor]:
    """Return the boxes of eight images: most near anchors, some not; one image has none."""
    chance = random(seed)
    anchors = Proposer(DESIGN, HEIGHT, WIDTH).double().anchors
    inside = (anchors[:, :2] >= 0).all(1) & (anchors[:, 2:] <= torch.tensor([48, 32])).all(1)
    among = anchors[inside]
    which = torch.randint(len(among), (IMAGES, 6), generator=chance)
    boxes = near(among[which], chance, 0.04)
    boxes[:, 0] = near(boxes[:, 0], chance, 0.3)
    boxes[:, 1] = torch.tensor([3.3, 10.1, 44.7, 15.2])  # longer than any anchor
    labels = torch.randint(CLASSES, (IMAGES, 6), generator=chance)
    number = torch.tensor([6, 5, 0, 4, 6, 3, 1, 6])
    labels[torch.arange(6) >= number[:, None]] = -1
    boxes[labels < 0] = torch.tensor([8.0, 8.0, 18.0, 18.0]).double()  # no truth: must not count
    return GroundTruth(boxes, labels), torch.rand(IMAGES, generator=chance)


def seen(truth: GroundTruth, lot: Tensor) -> list[plain.Image]:
    return [
        plain.Image(boxes[there].tolist(), labels[there].tolist(), seed)
        for boxes, labels, there, seed in zip(
            truth.boxes, truth.labels, truth.present, lot.tolist(), strict=True
        )
    ]


def said(seed: int, *shape: int, codes: int = 1, spread: float = 0.3) -> tuple[Tensor, Tensor]:
    """Return scores and codes; about a third of the codes are below the knee of the loss."""
    chance = random(seed)
    scores = torch.randn(shape, generator=chance, dtype=torch.float64)
    code_shape = (*shape, 4) if codes == 1 else (*shape[:-1], codes, 4)
    return scores, spread * torch.randn(code_shape, generator=chance, dtype=torch.float64)


@pytest.mark.parametrize("samples", [10, 2, 5, 100_000])
def test_the_losses_of_proposals_are_those_of_plain_loops(samples: int) -> None:
    proposer = Proposer(changed(anchor_samples=samples), HEIGHT, WIDTH).double()
    truth, lot = truths()
    scores, codes = said(2, IMAGES, len(proposer.anchors))
    actual = proposer.loss(scores, codes, truth, lot)
    expected = plain.proposal_losses(
        proposer.anchors.tolist(), scores.tolist(), codes.tolist(), seen(truth, lot), samples
    )
    assert actual.tolist() == pytest.approx(expected, rel=1e-9)


def test_half_of_the_sampled_anchors_are_hits_where_there_are_enough() -> None:
    """The loss depends on the sampled anchors: the scores of all, the codes of the hits."""
    proposer = Proposer(DESIGN, HEIGHT, WIDTH).double()
    truth, lot = truths()
    scores, codes = (tensor.requires_grad_() for tensor in said(3, IMAGES, len(proposer.anchors)))
    wrong, moved = proposer.loss(scores, codes, truth, lot)
    (of_scores,) = torch.autograd.grad(wrong, scores)
    (of_codes,) = torch.autograd.grad(moved, codes)
    used, hits = of_scores != 0, (of_codes != 0).any(-1)
    assert (used.sum(1) == DESIGN.anchor_samples).all()
    assert (hits.sum(1) <= DESIGN.anchor_samples // 2).all()
    assert (hits.sum(1) == DESIGN.anchor_samples // 2).sum() >= 4
    assert torch.equal(of_scores < 0, hits)  # their scores must rise, all others must fall
    for image, contents in enumerate(seen(truth, lot)):
        taken, missed = plain.chosen_anchors(proposer.anchors.tolist(), contents, 10)
        assert hits[image].nonzero().flatten().tolist() == sorted(taken)
        assert (used & ~hits)[image].nonzero().flatten().tolist() == sorted(missed)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("candidates", "number"), [(60, 500), (60, 24), (400, 24), (1, 1)])
def test_proposals_are_those_of_plain_loops(candidates: int, number: int, training: bool) -> None:
    """Half as many candidates and proposals in evaluation, if either is the limit."""
    proposer = Proposer(changed(candidates=candidates, proposals=number), HEIGHT, WIDTH).double()
    counts = [8 * 12 * 3, 4 * 6 * 3]
    scores, codes = said(4, IMAGES, sum(counts), spread=0.5)
    codes[:, :40] *= 20  # some far outside, some of maximum size
    proposer.head = Given(scores.split(counts, 1), codes.split(counts, 1))  # type: ignore[assignment]
    _, _, actual, present = proposer.train(training)([])
    anchors = proposer.anchors.tolist()
    half = 1 if training else 2
    assert actual.shape[1] <= max(number // half, 1)
    for image in range(IMAGES):
        outputs = zip(scores[image].tolist(), codes[image].tolist(), anchors, strict=True)
        rows = [(score, plain.decoded(code, box, (HEIGHT, WIDTH))) for score, code, box in outputs]
        assert any(plain.least_side(box) < 1e-3 for _, box in rows)
        levels = [rows[: counts[0]], rows[counts[0] :]]
        expected = plain.proposals(
            levels, max(candidates // half, 1), max(number // half, 1), overlap=0.7
        )
        assert present[image].nonzero().flatten().tolist() == [*range(len(expected))]
        torch.testing.assert_close(
            actual[image, present[image]], torch.tensor(expected, dtype=torch.float64)
        )


def regions(design: DetectorDesign = DESIGN) -> Regions:
    torch.manual_seed(6)
    made = Regions(design, CLASSES, HEIGHT, WIDTH).double()
    nn.init.normal_(made.head.scores.weight, std=5.0)  # as if trained: some probable, some not
    nn.init.normal_(made.head.deltas.weight, std=1.0)
    return made


def maps() -> list[Tensor]:
    chance = random(7)
    return [
        torch.randn(IMAGES, 3, *shape, generator=chance, dtype=torch.float64)
        for shape in ((8, 12), (4, 6))
    ]


def proposed(truth: GroundTruth) -> tuple[Tensor, Tensor]:
    """Return boxes near true ones, and as many anywhere; some are absent, one image has none."""
    chance = random(8)
    around = near(truth.boxes.repeat(1, 4, 1).clamp(min=0), chance, 0.15)
    corner = torch.rand(IMAGES, 24, 2, generator=chance).double() * torch.tensor([30, 16])
    side = 3 + 22 * torch.rand(IMAGES, 24, 2, generator=chance).double() ** 2
    far = torch.minimum(corner + side, torch.tensor([48.0, 32.0]).double())
    actual = torch.cat([around, torch.cat([corner, far], -1)], 1)
    present = torch.rand(IMAGES, 48, generator=chance) < 0.8
    present[2] = False
    return actual, present


def looks(stage: Regions, levels: list[Tensor], design: DetectorDesign) -> list[plain.Look]:
    """Return for each image a function that pools a region in plain loops and applies the head."""
    head = stage.head

    def look_at(image: int) -> plain.Look:
        planes = [level[image].tolist() for level in levels]

        def look(region: plain.Box) -> tuple[list[float], list[list[float]]]:
            level = plain.level_of(region, design.region_scale, 2, 3)
            features = [
                plain.pooled(plane, (4, 8)[level], region, design.region_size)
                for plane in planes[level]
            ]
            row = torch.tensor(features, dtype=torch.float64).permute(1, 2, 0).flatten()
            hidden = functional.relu(head.second(functional.relu(head.first(row))))
            return head.scores(hidden).tolist(), head.deltas(hidden).reshape(-1, 4).tolist()

        return look

    return [look_at(image) for image in range(IMAGES)]


def emptied(actual: Tensor, present: Tensor) -> list[list[plain.Box]]:
    rows: list[list[plain.Box]] = torch.where(present[..., None], actual, 0.0).tolist()
    return rows


@pytest.mark.parametrize("number", [12, 4, 7, 400])
def test_the_losses_of_regions_are_those_of_plain_loops(number: int) -> None:
    design = changed(regions=number)
    stage, levels, (truth, lot) = regions(design), maps(), truths()
    actual, present = proposed(truth)
    with torch.no_grad():
        losses = stage.loss(levels, actual, present, truth, lot)
        expected = plain.region_losses(
            emptied(actual, present), looks(stage, levels, design), seen(truth, lot), number
        )
    # Only the outputs of the head are rounded to float32.
    assert losses.tolist() == pytest.approx(expected, rel=1e-6)


def test_a_quarter_of_the_sampled_regions_are_hits_where_there_are_enough() -> None:
    stage, (truth, lot) = regions(), truths()
    actual, present = proposed(truth)
    scores, codes = (
        tensor.requires_grad_() for tensor in said(9, IMAGES, 12, CLASSES + 1, codes=CLASSES + 1)
    )
    stage.head = Given(scores, codes)  # type: ignore[assignment]
    wrong, moved = stage.loss(maps(), actual, present, truth, lot)
    (of_scores,) = torch.autograd.grad(wrong, scores)
    (of_codes,) = torch.autograd.grad(moved, codes)
    used = (of_scores != 0).any(-1)
    label = torch.where(used, of_scores.argmin(-1), -1)  # the one class whose score must rise
    moved = (of_codes != 0).any(-1)
    assert ((label > 0).sum(1) <= 3).all()
    assert ((label > 0).sum(1) == 3).sum() >= 5
    assert torch.equal(moved.any(-1), label > 0)
    assert torch.equal(moved.int().argmax(-1)[label > 0], label[label > 0])
    for image, contents in enumerate(seen(truth, lot)):
        chosen = plain.chosen_regions(emptied(actual, present)[image], contents, 12)
        assert [kind for _, kind, _ in chosen] == label[image, : len(chosen)].tolist()
        assert (label[image, len(chosen) :] == -1).all()
    assert used[2].sum() == 0  # nothing there, nothing proposed


def test_the_two_stages_draw_different_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sample from the same boxes, with the same seed per image."""
    proposer, stage, (_, lot) = Proposer(DESIGN, HEIGHT, WIDTH).double(), regions(), truths()
    nothing = GroundTruth(torch.full((IMAGES, 1, 4), -1.0).double(), torch.full((IMAGES, 1), -1))
    scores, codes = (tensor.requires_grad_() for tensor in said(10, IMAGES, len(proposer.anchors)))
    (of_scores,) = torch.autograd.grad(proposer.loss(scores, codes, nothing, lot)[0], scores)
    shown: list[Tensor] = []

    def watched(levels: object, strides: object, boxes: Tensor, *rest: object, size: int) -> Tensor:
        shown.append(boxes)
        return boxes.new_zeros(*boxes.shape[:2], 3, size, size)

    monkeypatch.setattr("vflops.models.detection.regions.roi_align", watched)
    boxes = proposer.anchors.expand(IMAGES, -1, 4)
    stage.loss(maps(), boxes, torch.ones(boxes.shape[:2], dtype=torch.bool), nothing, lot)
    first = [{*map(tuple, boxes[0, row != 0].tolist())} for row in of_scores]
    second = [{*map(tuple, rows.tolist())} for rows in shown[0]]
    assert all(len(chosen) == 10 for chosen in first) and all(
        len(chosen) == 12 for chosen in second
    )
    assert sum(len(one & other) for one, other in zip(first, second, strict=True)) < 20  # of 80


def test_gradients_of_the_losses_are_right() -> None:
    """Of scores and codes in float64, on both sides of the knee of the loss."""
    proposer, stage, (truth, lot) = Proposer(DESIGN, HEIGHT, WIDTH).double(), regions(), truths()
    few, lot = GroundTruth(truth.boxes[:1], truth.labels[:1]), lot[:1]
    first = [tensor.requires_grad_() for tensor in said(12, 1, len(proposer.anchors))]
    assert torch.autograd.gradcheck(
        lambda scores, codes: proposer.loss(scores, codes, few, lot), first, fast_mode=True
    )
    actual, present = proposed(truth)
    levels = [level[:1] for level in maps()]

    def second_loss(*given: Tensor) -> Tensor:
        stage.head = Given(*given)  # type: ignore[assignment]
        return stage.loss(levels, actual[:1], present[:1], few, lot)

    second = [tensor.requires_grad_() for tensor in said(13, 1, 12, CLASSES + 1, codes=CLASSES + 1)]
    assert torch.autograd.gradcheck(second_loss, second, fast_mode=True)


@pytest.mark.parametrize(("scale", "number"), [(20.0, 20), (20.0, 200), (30.0, 20), (224.0, 20)])
def test_detections_are_those_of_plain_loops(scale: float, number: int) -> None:
    """``region_scale`` decides the level of a region; improbable detections are left out."""
    design = changed(region_scale=scale, detections=number)
    stage, levels, (truth, _) = regions(design).eval(), maps(), truths()
    actual, present = proposed(truth)
    with torch.no_grad():
        rows = stage.detect(levels, actual, present)
        image_looks = looks(stage, levels, design)
        for image in set(range(IMAGES)) - {2}:
            expected = plain.detections(
                actual[image, present[image]].tolist(),
                image_looks[image],
                (HEIGHT, WIDTH),
                least=0.05,
                overlap=0.5,
                number=number,
            )
            assert len(expected) > 10
            detected = rows[image, rows[image, :, 5] >= 0]
            wanted = torch.tensor(expected, dtype=torch.float64)
            # The outputs of the head are rounded to float32, by 6e-8: a code of 4, the largest,
            # moves a side of 48 pixels by 1.2e-5.
            torch.testing.assert_close(detected, wanted, rtol=0, atol=3e-5)
    assert (rows[2, :, 5] == -1).all()
