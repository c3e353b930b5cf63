"""Operators that counting rules do not know: a transformer, counted by hand."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.trained_runs import HandmadeRun, course, job
from vflops.counting.capture import InputSpec, capture, cross_entropy
from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.errors import FolderError
from vflops.record.folder import RunFolder
from vflops.record.formats.graph import Graph
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.score import score_tables
from vflops.results.score.score_file import TrainingScore
from vflops.results.score.scoring import score
from vflops.workloads.automl.search_events import RULES
from vflops.workloads.contract.registry import workloads

NAME = "my-transformer"
VOCABULARY, CLASSES, LENGTH, WIDTH, HEADS, HIDDEN = 50, 10, 16, 32, 4, 128
DENSE_FORWARD = 2 * (
    LENGTH * WIDTH * 3 * WIDTH  # query, key and value
    + LENGTH * WIDTH * WIDTH  # what attention gives
    + 2 * LENGTH * WIDTH * HIDDEN  # the perceptron
    + WIDTH * CLASSES
)
ATTENTION_FORWARD = 2 * 2 * LENGTH * LENGTH * WIDTH  # queries by keys, and weights by values
# The first operand of every product depends on the embedding, which is trained: each product has
# both gradients, and each gradient costs as much as the product.
DENSE, ATTENTION = 3 * DENSE_FORWARD, 3 * ATTENTION_FORWARD


class Transformer(nn.Module):
    """One layer with attention written out, as many users write it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))
        self.classifier = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        batch = len(x)
        parts = self.query_key_value(x).view(batch, LENGTH, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        weights = (query @ key.transpose(2, 3) / (WIDTH // HEADS) ** 0.5).softmax(3)
        x = x + self.output((weights @ value).transpose(1, 2).reshape(batch, LENGTH, WIDTH))
        logits: Tensor = self.classifier((x + self.mlp(self.norm(x))).mean(1))
        return logits


class FusedTransformer(Transformer):
    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        batch = len(x)
        parts = self.query_key_value(x).view(batch, LENGTH, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, LENGTH, WIDTH))
        logits: Tensor = self.classifier((x + self.mlp(self.norm(x))).mean(1))
        return logits


class OnFeatures(Transformer):
    """The same on features instead of tokens: the rules of the papers do not know it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = Shift()  # type: ignore[assignment]


class Shift(nn.Module):
    """Adds trained positions, so that all products have both gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(LENGTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.positions


def graph(kind: type[nn.Module] = Transformer, batch: int = 3) -> Graph:
    spec = InputSpec((LENGTH,), "int64")
    if kind is OnFeatures:
        spec = InputSpec((LENGTH, WIDTH))
    return capture(kind, [spec], name=NAME, batch=batch, loss=cross_entropy)


@dataclass(frozen=True)
class Trained:
    folder: RunFolder
    training: TrainingScore


@pytest.fixture
def trained(
    handmade_run: HandmadeRun, run_folder: RunFolder, request: pytest.FixtureRequest
) -> Trained:
    """A training of a transformer, counted by the rules of the parameter; on tokens if executed.

    In models on tokens, all rules count everything.
    """
    handmade_run.graph = graph(Transformer if request.param == "executed" else OnFeatures)
    record = job(workload=NAME, rules=request.param)
    handmade_run.plan(record, ceilings=tuple(Contents(run_folder).measurements))
    handmade_run.attempt(1, 0.0, *course(0.9))
    (training,) = score(Contents(handmade_run.folder)).trainings
    return Trained(handmade_run.folder, training)


@pytest.mark.parametrize("kind", [Transformer, FusedTransformer])
def test_executed_operations_are_those_of_the_hand_calculation(kind: type[nn.Module]) -> None:
    total = count(graph(kind), convention("executed")).total
    assert total.forward == 3 * (DENSE_FORWARD + ATTENTION_FORWARD)
    assert total.total == 3 * (DENSE + ATTENTION)


def test_only_the_workloads_of_the_papers_have_the_rules_of_the_papers() -> None:
    rules = {name: spec.rules for name, spec in workloads().items()}
    assert rules["image-classification"] == rules["extreme-weather"] == "hpcai500"
    assert rules["automl"] == RULES
    assert rules["command"] == "executed"


@pytest.mark.parametrize("trained", ["executed"], indirect=True)
def test_a_transformer_is_scored_by_what_is_executed(trained: Trained) -> None:
    work, speed, mfu = trained.training.work, trained.training.speed, trained.training.mfu
    assert work is not None and speed is not None and mfu.ceiling_flops is not None
    assert (work.rules, work.ops_total) == ("executed", DENSE + ATTENTION)
    assert speed.flops == pytest.approx((DENSE + ATTENTION) * speed.samples_per_s)
    assert mfu.value == pytest.approx(speed.flops / mfu.ceiling_flops)
    assert work.uncounted_share == 0
    assert {"aten.gelu", "aten.native_layer_norm"} <= {item.op for item in work.uncounted}
    (model,) = score(Contents(trained.folder)).models
    assert model.bound is not None and model.bound.rules == "executed"


@pytest.mark.parametrize("trained", ["hpcai500"], indirect=True)
def test_rules_that_do_not_know_its_operators_say_so(trained: Trained) -> None:
    """The rules omit the products of attention, and the factor 2 of every dense layer."""
    work, speed, mfu = trained.training.work, trained.training.speed, trained.training.mfu
    assert work is not None and speed is not None and mfu.ceiling_flops is not None
    assert work.ops_total < DENSE + ATTENTION == work.ops_executed
    share = ATTENTION / (DENSE + ATTENTION)
    assert work.uncounted_share == pytest.approx(share)
    assert (work.uncounted[0].op, work.uncounted[0].nodes) == ("aten.bmm", 2)
    executed = (DENSE + ATTENTION) * speed.samples_per_s
    assert mfu.flops == pytest.approx(executed)
    assert mfu.value == pytest.approx(executed / mfu.ceiling_flops)

    rows = dict(score_tables.training_rows(trained.training))
    assert rows["not counted"].startswith("aten.bmm ×2, ")
    assert rows["not counted"].endswith(f"{100 * share:.1f} % of the executed operations")
    assert "FLOP executed" in rows["operations"]

    (finding,) = (f for f in check(Contents(trained.folder)).findings if f.rule == "uncounted")
    assert finding.verdict == "fail"
    assert "hpcai500 does not count aten.bmm ×2, " in finding.evidence
    assert "such as executed" in finding.evidence


@pytest.mark.parametrize("op", ["mine.mix", "aten.special_bessel_j0"])
def test_an_operator_of_unknown_work_is_not_called_no_work(
    handmade_run: HandmadeRun, op: str
) -> None:
    known = graph()
    index = next(i for i, node in enumerate(known.nodes) if node.op == "aten.gelu.default")
    foreign = known.nodes[index].model_copy(update={"op": f"{op}.default", "kind": "other"})
    nodes = (*known.nodes[:index], foreign, *known.nodes[index + 1 :])
    handmade_run.graph = known.model_copy(update={"nodes": nodes})
    handmade_run.plan(job(workload=NAME, rules="executed"))
    handmade_run.attempt(1, 0.0, *course(0.9))
    contents = Contents(handmade_run.folder)
    (training,) = score(contents).trainings
    assert training.work is not None and training.work.uncounted[0].op == op
    rows = dict(score_tables.training_rows(training))
    assert rows["not counted"].startswith(f"{op} ×1, ")
    assert rows["not counted"].endswith("an unknown share of the executed operations")
    (finding,) = (f for f in check(contents).findings if f.rule == "uncounted")
    assert finding.verdict == "cannot tell"


def test_rules_that_are_not_installed_are_named(handmade_run: HandmadeRun) -> None:
    handmade_run.plan(job(rules="somebody-elses"))
    with pytest.raises(FolderError, match="'somebody-elses', which is not installed") as caught:
        score(Contents(handmade_run.folder))
    assert caught.value.hint and "install" in caught.value.hint
