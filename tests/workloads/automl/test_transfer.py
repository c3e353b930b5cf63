"""Built architectures: the numbers of the known network, the counts of the graph, and children
that compute what their parents do."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.counting.capture import InputSpec, capture, cross_entropy
from vflops.counting.conventions import BUILT_IN
from vflops.counting.count import count
from vflops.errors import UsageError
from vflops.models.resnet import ResNet
from vflops.workloads.automl.architecture import architecture_cost
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.module_builder import Conv, Network, build
from vflops.workloads.automl.architecture.morphs import (
    KINDS,
    Limits,
    Morph,
    apply,
    possible,
    sample,
)
from vflops.workloads.automl.architecture.starting_networks import resnet, resnet50, small
from vflops.workloads.automl.architecture.weight_transfer import transfer

LIMITS = Limits(parameters=250_000)
STARTS = (small(), resnet((1, 2), (3, 33, 30), 5, width=8))
"""Without and with a max-pool, on a square and on another image."""


def trained(architecture: Architecture, seed: int = 0) -> Network:
    """A network in double precision whose batch norms look as after a training."""
    generator = torch.Generator().manual_seed(seed)
    network = build(architecture, generator).double()
    for norm in (module for module in network.modules() if isinstance(module, nn.BatchNorm2d)):
        norm.weight.data.uniform_(0.3, 1.5, generator=generator)
        norm.bias.data.normal_(0, 0.4, generator=generator)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        norm.running_mean.normal_(0, 0.5, generator=generator)
        norm.running_var.uniform_(0.3, 2, generator=generator)
    return network.eval()


def images(architecture: Architecture, batch: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, *architecture.input_shape, generator=generator, dtype=torch.float64)


def apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max())


def random_walks(seeds: range, length: int) -> Iterator[tuple[Architecture, Morph, Architecture]]:
    for seed in seeds:
        architecture, rng = STARTS[seed % 2], random.Random(seed)
        for _ in range(length):
            found = sample(architecture, rng, LIMITS)
            assert found is not None
            yield architecture, *found
            architecture = found[1]


@torch.no_grad()
def test_same_weights_same_numbers_as_the_repositorys_resnet50() -> None:
    """At a quarter of its width, which the layers do not know of."""
    architecture = resnet((3, 4, 6, 3), (3, 64, 64), 10, width=16)
    known = ResNet(classes=10, width=16).eval()
    network = build(architecture).eval()
    weights = known.state_dict().values()
    network.load_state_dict(dict(zip(network.state_dict(), weights, strict=True)))
    assert sum(p.numel() for p in network.parameters()) == architecture.parameters
    batch = torch.randn(2, 3, 64, 64)
    assert torch.equal(network(batch), known(batch))


def test_convolutions_begin_as_he_says_and_one_generator_gives_one_network() -> None:
    architecture = small("laptop")
    first, second = (build(architecture, torch.Generator().manual_seed(3)) for _ in range(2))
    state = first.state_dict()
    assert all(torch.equal(state[name], item) for name, item in second.state_dict().items())
    for conv in (module for module in first.modules() if isinstance(module, nn.Conv2d)):
        fan_out = conv.out_channels * conv.kernel_size[0] ** 2
        assert float(conv.weight.detach().std()) == pytest.approx((2 / fan_out) ** 0.5, rel=0.25)


def captured(architecture: Architecture, batch: int) -> None:
    spec = InputSpec(architecture.input_shape)
    seen = capture(
        lambda: build(architecture), [spec], name="built", batch=batch, loss=cross_entropy
    )
    made = architecture_cost.graph(architecture, batch)
    assert made.parameters == seen.parameters
    assert made.parameter_count == architecture.parameters
    for rules in BUILT_IN:
        ours, torchs = count(made, rules), count(seen, rules)
        assert ours.total == torchs.total
        assert ours.by_layer == torchs.by_layer


def test_counted_operations_are_those_of_the_module_that_runs() -> None:
    captured(resnet50(), 2)
    captured(small("laptop", (3, 33, 30), 7), 3)
    children = [child for *_, child in random_walks(range(2), 14)]
    assert {layer.kind for child in children for layer in child.layers} >= {"norm", "concat"}
    for architecture in children[13::14]:
        captured(architecture, 2)


def test_shapes_are_those_of_the_module_that_runs() -> None:
    *_, (_, _, architecture) = random_walks(range(5, 6), 14)
    network, seen = build(architecture).eval(), dict[int, tuple[int, ...]]()
    for name, module in network.layers.items():
        module.register_forward_hook(
            lambda _module, _inputs, result, id=int(name): seen.update(
                {id: tuple(result.shape[1:])}
            )
        )
    network(images(architecture).float())
    assert seen == {id: shape for id, shape in architecture.shapes.items() if id}


def test_memory_is_about_what_autograd_keeps() -> None:
    architecture, batch = small("laptop", (3, 32, 32), 10), 16
    network, kept = build(architecture).train(), dict[int, int]()

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = network(images(architecture, batch).float()).sum()
    weights = 4 * architecture.parameters
    measured = sum(kept.values()) - weights + 3 * weights
    assert architecture_cost.memory_bytes(architecture, batch, 4) == pytest.approx(
        measured, rel=0.05
    )
    assert loss.requires_grad


def test_one_static_graph_for_a_compiler() -> None:
    *_, (_, _, architecture) = random_walks(range(1), 10)
    network, batch = build(architecture).eval(), images(architecture).float()
    traced = torch.fx.symbolic_trace(network)  # fails on Python that looks at values or shapes
    assert torch.equal(traced(batch), network(batch))


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_every_place_of_every_kind_keeps_the_function(kind: str) -> None:
    parent = small()
    network, batch = trained(parent), images(parent)
    before = network(batch)
    morphs = [morph for morph in possible(parent) if morph.kind == kind]
    assert morphs
    for morph in morphs:
        child = apply(parent, morph)
        generator = torch.Generator().manual_seed(2)
        after = transfer(network, parent, morph, child, generator)
        assert sum(p.numel() for p in after.parameters()) == child.parameters > parent.parameters
        assert not after.training
        assert apart(after(batch), before) < 1e-12, morph


@torch.no_grad()
def test_families_of_random_morphs_keep_the_function() -> None:
    generator, kinds = torch.Generator().manual_seed(4), set[str]()
    for parent, morph, child in random_walks(range(5), 16):
        if parent in STARTS:
            network, batch = trained(parent), images(parent)
            before = network(batch)
        network = transfer(network, parent, morph, child, generator)
        assert apart(network(batch), before) < 1e-9, morph
        kinds.add(morph.kind)
    assert kinds == set(KINDS)


def step(network: Network, batch: Tensor, labels: Tensor) -> None:
    network.zero_grad()
    functional.cross_entropy(network(batch), labels).backward()
    with torch.no_grad():
        for parameter in network.parameters():
            assert parameter.grad is not None
            parameter.sub_(parameter.grad, alpha=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_is_new_learns(kind: str) -> None:
    parent = small()
    network = trained(parent).train()
    batch = images(parent, 8)
    labels = torch.arange(8) % 4
    morphs = [morph for morph in possible(parent) if morph.kind == kind]
    for morph in random.Random(1).sample(morphs, min(4, len(morphs))):
        child = apply(parent, morph)
        start = transfer(network, parent, morph, child, torch.Generator().manual_seed(2))
        learned = copy.deepcopy(start)
        step(learned, batch, labels)
        step(learned, batch, labels)  # a projection behind a scale of 0 moves in the second step
        for (name, old), new in zip(start.named_parameters(), learned.parameters(), strict=True):
            changed = (old != new).flatten(1).any(1) if old.dim() > 1 else (old != new)
            assert changed.float().mean() > 0.9, (morph, name)


def test_copies_of_a_filter_part() -> None:
    parent = small()
    morph = Morph(kind="widen", layer=2, filters=16)
    child = apply(parent, morph)
    network = transfer(
        trained(parent).train(), parent, morph, child, torch.Generator().manual_seed(2)
    )
    widened = network.layers["2"]
    assert isinstance(widened, Conv)
    filters = widened.conv.weight.detach().flatten(1)
    assert int((torch.cdist(filters, filters) < 1e-12).sum()) == 2 * 16  # itself and one copy
    step(network, images(parent, 8), torch.arange(8) % 4)
    assert int((torch.cdist(filters, filters) < 1e-6).sum()) == 16


@torch.no_grad()
def test_a_deeper_child_is_about_its_parent_in_training_too() -> None:
    parent = small("laptop", (3, 32, 32), 10)
    network, batch = trained(parent).train(), images(parent, 32)
    for at in (parent.chain[1], parent.chain[-3]):
        morph = Morph(kind="deepen", layer=at)
        child = apply(parent, morph)
        deeper = transfer(network, parent, morph, child, torch.Generator().manual_seed(2))
        seen: list[Tensor] = []
        deeper.layers[str(max(child.layer))].register_forward_hook(
            lambda _module, inputs, result, seen=seen: seen.extend((inputs[0].clone(), result))
        )
        deeper(batch)
        given, made = seen
        assert float((made - given).norm() / given.norm()) < 0.35


def test_one_generator_gives_one_child() -> None:
    parent = small()
    morph = Morph(kind="skip-add", layer=parent.chain[-3], start=1)
    network, child = trained(parent), apply(parent, morph)
    one, other = (
        transfer(network, parent, morph, child, torch.Generator().manual_seed(2)).state_dict()
        for _ in range(2)
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_what_does_not_belong_together_is_refused() -> None:
    parent = small()
    morph = Morph(kind="deepen", layer=1)
    generator = torch.Generator()
    with pytest.raises(UsageError, match="not the result of applying morph deepen"):
        transfer(build(parent), parent, morph, parent, generator)
    with pytest.raises(UsageError, match="not from a Linear"):
        transfer(nn.Linear(1, 1), parent, morph, apply(parent, morph), generator)
