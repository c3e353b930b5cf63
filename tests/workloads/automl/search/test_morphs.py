"""Drawing morphs at the limits: what is beyond them is known by what it adds, not built again."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from vflops.workloads.automl.architecture import (
    architecture_cost,
    morphs,
    starting_networks,
    surgery,
)
from vflops.workloads.automl.architecture.added_cost import AddedCost
from vflops.workloads.automl.architecture.layer_graph import Architecture, Layer
from vflops.workloads.automl.architecture.morphs import Limits, Morph, MorphSampler, apply, possible


def grown(seed: int, steps: int = 8) -> Architecture:
    rng, architecture = random.Random(seed), starting_networks.small()
    for _ in range(steps):
        found = morphs.sample(architecture, rng, Limits())
        assert found is not None
        architecture = found[1]
    return architecture


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_morphs_that_are_alike_add_the_same_parameters_operations_and_bytes(seed: int) -> None:
    rng, start = random.Random(seed), grown(seed)
    alike: dict[object, list[Morph]] = defaultdict(list)
    added = AddedCost(start)
    for morph in possible(start):
        alike[added.cost_key(morph)].append(morph)
    several = [group for group in alike.values() if len(group) > 1]
    assert len(several) > 10
    for group in several:
        children = [apply(start, morph) for morph in rng.sample(group, 2)]
        facts = {
            (x.parameters, architecture_cost.memory_bytes(x, 3), architecture_cost.ops(x).total)
            for x in children
        }
        assert len(facts) == 1, group


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_parameters_that_a_morph_adds_are_those_of_what_it_makes(seed: int) -> None:
    start = grown(seed)
    added = AddedCost(start)
    for morph in possible(start):
        child = apply(start, morph)
        assert start.parameters + added.parameters(morph) == child.parameters, morph


@pytest.mark.parametrize("share", [1.0, 1.02, 1.1])
def test_what_is_within_the_limits_is_what_trying_them_all_finds(share: float) -> None:
    start = grown(4, steps=3)
    limits = Limits(parameters=int(share * start.parameters), depth=start.depth)
    choice, every = MorphSampler(start, limits), possible(start)
    random.Random(1).shuffle(every)
    fitting = [item for item in every if morphs.is_within_limits(apply(start, item), limits)]
    assert [item for item in every if choice._child(item) is not None] == fitting
    assert bool(fitting) == (share > 1)
    assert (choice.draw(random.Random(1)) is None) == (not fitting)


def test_a_depth_that_one_place_exceeds_does_not_rule_out_another() -> None:
    def conv(id: int, taken: int) -> Layer:
        return Layer(id=id, kind="conv", inputs=(taken,), filters=8, kernel=3, relu=True)

    start = Architecture(  # the longest way is that of the skip: layers 1, 3, 4, 5
        input_shape=(3, 8, 8),
        classes=4,
        layers=(
            *(conv(1, 0), conv(2, 1), conv(3, 1), conv(4, 3), conv(5, 4)),
            Layer(id=6, kind="add", inputs=(2, 5)),
            Layer(id=7, kind="global-pool", inputs=(6,)),
            Layer(id=8, kind="dense", inputs=(7,)),
        ),
    )
    choice, rng = MorphSampler(start, Limits(depth=start.depth)), random.Random(1)
    drawn = [found for _ in range(200) if (found := choice.draw(rng))]
    assert {morph.layer for morph, _ in drawn if morph.kind == "deepen"} == {2}


def test_a_network_at_its_limits_is_built_a_few_times_not_once_a_morph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = starting_networks.resnet50()
    built: list[int] = []
    real = surgery._with_layers

    def counted(architecture: Architecture, layers: list[Layer]) -> Architecture:
        built.append(len(layers))
        return real(architecture, layers)

    monkeypatch.setattr(surgery, "_with_layers", counted)
    assert MorphSampler(start, Limits(parameters=start.parameters)).draw(random.Random(1)) is None
    assert not built
    choice = MorphSampler(start, Limits(memory_bytes=architecture_cost.memory_bytes(start, 1)))
    assert choice.draw(random.Random(1)) is None
    assert 0 < len(built) < len(possible(start)) / 5
    built.clear()
    assert choice.draw(random.Random(2)) is None
    assert not built
