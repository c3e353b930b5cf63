"""What passes between parts of a model: by hand, and as a training would cut it."""

from __future__ import annotations

import itertools
import statistics
from typing import Any, cast

import pytest
import torch
from torch import fx

from tests.support.links_codec import buckets
from vflops.config.training import TrainSettings
from vflops.counting.capture import InputSpec, capture
from vflops.errors import UsageError
from vflops.models.language.transformer import Transformer
from vflops.models.language.transformer_design import TransformerDesign
from vflops.models.resnet import ResNet
from vflops.record.formats.graph import Graph, Node, Value
from vflops.studies.predict.stage_traffic import find_cuts
from vflops.train.parallel.cut import StageCut, cut
from vflops.train.parallel.divisible import divisible
from vflops.workloads.contract.workload import Workload


def chain(*widths: int, batch: int = 2) -> Graph:
    """Dense layers one after the other, the first and the last joined by a sum where they can."""
    values = [Value(shape=(batch, widths[0]), dtype="float32", grad=False)]
    nodes, last, parameters = [], 0, {}
    for number, (before, after) in enumerate(itertools.pairwise(widths)):
        name = f"{number}.weight"
        parameters[name] = before * after
        values.append(Value(shape=(before, after), dtype="float32", grad=True, parameter=name))
        values.append(Value(shape=(batch, after), dtype="float32", grad=True))
        made = len(values) - 1
        nodes.append(
            Node(kind="dense", op="mm", scope=str(number), inputs=(last, made - 1), outputs=(made,))
        )
        last = made
    values.append(Value(shape=(batch, widths[-1]), dtype="float32", grad=True))
    joined = Node(
        kind="elementwise",
        op="add",
        scope="",
        inputs=(2, last),
        outputs=(len(values) - 1,),
        attributes={"function": "add"},
    )
    return Graph(
        model="chain",
        framework="none",
        batch=batch,
        inputs=(0,),
        outputs=(len(values) - 1,),
        parameters=parameters,
        values=tuple(values),
        nodes=(*nodes, joined),
    )


def test_what_passes_a_cut_is_all_that_is_used_behind_it() -> None:
    found = find_cuts(chain(10, 20, 30, 20))
    assert found is not None
    assert (found.layers, found.stages) == (3, 3)
    # After the first layer its 20 numbers; after the second 30, and the 20 that are added later.
    assert found.activation_bytes == pytest.approx(4 * (20 + 50) / 2)
    assert found.layer_bytes == pytest.approx(4 * (20 + 30 + 20) / 3)
    halved = find_cuts(chain(10, 20, 30, 20), half_precision=True)
    assert halved is not None and halved.activation_bytes == found.activation_bytes / 2


def test_one_layer_cannot_be_shared() -> None:
    assert find_cuts(chain(10, 20)) is None


class Given:
    """As much of a workload as a cut asks for."""

    model_inputs = 1

    def model(self) -> ResNet:
        return ResNet((1, 2), classes=5, width=8, stem="small")

    def input_specs(self) -> tuple[InputSpec, ...]:
        return (InputSpec((3, 16, 16)),)


def test_the_bench_codes_all_gradients_in_the_buckets_of_ddp() -> None:
    graph = capture(Given().model, Given().input_specs(), name="small")
    found = buckets(graph)
    assert sum(each.buffer().nbytes for each in found) == 4 * graph.parameter_count
    assert [each.is_last() for each in found] == [False] * (len(found) - 1) + [True]
    # The last layer's come first: they are known first.
    assert found[0].gradients()[0].shape == (5,)


def stages(number: int, given: Any = Given) -> list[StageCut]:
    settings = TrainSettings(
        ranks=number, batch=256 * number, accumulate=number, parallel={"mode": "pipeline"}
    )
    return cut(cast(Workload, given()), settings, "small")


class GivenText:
    """A language model whose output layer is tied to its embedding."""

    model_inputs = 2
    design = TransformerDesign(
        layers=2, width=16, heads=4, kv_heads=4, mlp_width=64, vocabulary=64, context=32
    )

    def model(self) -> Transformer:
        return Transformer(self.design)

    def input_specs(self) -> tuple[InputSpec, ...]:
        return (InputSpec((32,), "int64"),) * 2


def test_a_language_model_is_cut_where_a_training_cuts_it() -> None:
    """Attention and MLP are whole, so only the residual sum passes."""
    graph = capture(GivenText().model, GivenText().input_specs(), name="small")
    declared = divisible(cast(Workload, GivenText()), "small")
    found = find_cuts(graph.model_copy(update={"divisible": declared}))
    assert found is not None and found.layers == 2 * 2 + 1
    with pytest.raises(UsageError, match=f"it has layers for at most {found.layers}"):
        stages(found.layers + 1, GivenText)
    first, second = stages(2, GivenText)
    passing = fx.GraphModule(GivenText().model(), first.graph)(
        torch.zeros(2, 32, dtype=torch.int64)
    )
    assert found.activation_bytes == sum(tensor.nbytes / 2 for tensor in passing) == 4 * 32 * 16
    assert (first.inputs, second.inputs) == ((0,), (1,))
    unknown = find_cuts(graph)  # as a run of an earlier release recorded it
    assert unknown is not None and unknown.layers == 2 * 4 + 1


def test_layers_and_bytes_are_those_of_a_training_that_is_cut() -> None:
    found = find_cuts(capture(Given().model, Given().input_specs(), name="small"))
    assert found is not None
    with pytest.raises(UsageError, match=f"it has layers for at most {found.layers}"):
        stages(found.layers + 1)
    model, passing = Given().model(), [torch.zeros(2, 3, 16, 16)]
    sent = []
    for number, each in enumerate(stages(found.stages)):
        sent.append(sum(tensor.nbytes for tensor in passing) / 2)
        made = fx.GraphModule(model, each.graph)(*passing)
        passing = list(made) if isinstance(made, tuple) else [made]
        assert each.inputs == ((0,) if number == 0 else ())
    # A training takes the cheapest of cuts that are alike; a mean of all is close to that.
    assert found.activation_bytes == pytest.approx(statistics.fmean(sent[1:]), rel=0.25)
