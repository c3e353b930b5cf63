"""Architectures as data: what is a network, its shapes, its name, what it costs, how it grows."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from vflops.errors import FolderError, UsageError
from vflops.record.formats.graph import Graph
from vflops.workloads.automl.architecture import architecture_cost
from vflops.workloads.automl.architecture.layer_graph import Architecture, Layer
from vflops.workloads.automl.architecture.morphs import (
    KINDS,
    Limits,
    Morph,
    apply,
    exceeded_limits,
    is_within_limits,
    possible,
    sample,
)
from vflops.workloads.automl.architecture.starting_networks import resnet, resnet50, small


def grown(seed: int, morphs: int = 12) -> Architecture:
    architecture, rng = small(), random.Random(seed)
    for _ in range(morphs):
        found = sample(architecture, rng, Limits())
        assert found is not None
        architecture = found[1]
    return architecture


def network(*layers: dict[str, Any], classes: int = 2) -> Architecture:
    return Architecture.model_validate(
        {"input_shape": (3, 8, 8), "classes": classes, "layers": layers}
    )


CONV = {"id": 1, "kind": "conv", "inputs": [0], "filters": 4, "kernel": 3}
POOL = {"id": 8, "kind": "global-pool", "inputs": [1]}
DENSE = {"id": 9, "kind": "dense", "inputs": [8]}


def test_resnet50_is_the_published_one() -> None:
    architecture = resnet50()
    assert architecture.parameters == 25_557_032
    assert architecture.depth == 50
    kinds = Counter(layer.kind for layer in architecture.layers)
    assert kinds == {"conv": 53, "add": 16, "max-pool": 1, "global-pool": 1, "dense": 1}
    assert architecture.shapes[architecture.layers[-2].inputs[0]] == (2048, 7, 7)


def test_v1_costs_what_the_authors_program_counts() -> None:
    v1 = resnet((3, 4, 6, 3), (3, 224, 224), 1000, stride_in_1x1=True)
    assert architecture_cost.ops(v1, "aiperf-original").total == 23_053_458_315


def test_signature_of_a_small_resnet() -> None:
    architecture = small("tiny")
    assert architecture.signature_layers() == (
        ("conv", 8, 5, 2),
        *(("conv", 8, 1, 1), ("conv", 8, 3, 1), ("conv", 32, 1, 1)),
        *(("conv", 16, 1, 1), ("conv", 16, 3, 2), ("conv", 64, 1, 1)),
        *(("conv", 32, 1, 1), ("conv", 32, 3, 2), ("conv", 128, 1, 1)),
    )
    assert architecture.skips() == ((1, 4, "add"), (4, 7, "add"), (7, 10, "add"))


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([CONV, {**CONV, "inputs": [1]}, POOL, DENSE], "two layers have the id 1"),
        (
            [{**CONV, "inputs": [8]}, POOL, DENSE],
            "layer 1 has input 8, which is not an earlier layer",
        ),
        ([CONV, {**CONV, "id": 2}, POOL, DENSE], "no layer uses the output of layer 2"),
        ([CONV, POOL], "the last layer must be dense, and no other layer may be"),
        ([CONV, {**DENSE, "inputs": [1]}], "dense takes one value per channel, not 4×8×8"),
        ([{**CONV, "kernel": 4}, POOL, DENSE], "kernel 4 is not odd"),
        ([{**CONV, "filters": 0}, POOL, DENSE], "conv needs at least 1 filter"),
        ([CONV, {**POOL, "stride": 2}, DENSE], "global-pool has no stride"),
        ([{**CONV, "inputs": [0, 0]}, POOL, DENSE], "conv takes one input, not 2"),
        (
            [CONV, {"id": 2, "kind": "add", "inputs": [1, 0]}, {**POOL, "inputs": [2]}, DENSE],
            "shapes 4×8×8 and 3×8×8 cannot be added",
        ),
        (
            [
                {**CONV, "stride": 2},
                {"id": 2, "kind": "concat", "inputs": [1, 0]},
                {**POOL, "inputs": [2]},
                DENSE,
            ],
            "planes of 4×4×4 and 3×8×8 differ",
        ),
    ],
)
def test_what_is_no_network_is_refused_in_words(layers: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        network(*layers)
    data = {"schema": "vflops.architecture/1", "input_shape": [3, 8, 8], "classes": 2}
    with pytest.raises(FolderError, match=words.lower()):
        Architecture.parse({**data, "layers": layers}, Path("best.json"))


def test_a_file_gives_the_same_architecture(tmp_path: Path) -> None:
    architecture = grown(3)
    architecture.write(tmp_path / "a.json")
    again = Architecture.read(tmp_path / "a.json")
    assert again == architecture
    assert again.digest == architecture.digest
    text = json.loads((tmp_path / "a.json").read_text())
    del text["schema"]
    jsonschema.validate(text, Architecture.model_json_schema())


def renumbered(architecture: Architecture, rng: random.Random) -> Architecture:
    """The same network under other ids, its layers in another order that is as good."""
    ids = rng.sample(range(1, 1000), len(architecture.layers))
    new = dict(zip((layer.id for layer in architecture.layers), ids, strict=True)) | {0: 0}
    waiting, ready, layers = list(architecture.layers), {0}, []
    while waiting:
        layer = rng.choice([x for x in waiting if ready.issuperset(x.inputs)])
        waiting.remove(layer)
        ready.add(layer.id)
        fields = {"id": new[layer.id], "inputs": tuple(new[source] for source in layer.inputs)}
        layers.append(Layer(**{**dict(layer), **fields}))
    return Architecture(
        input_shape=architecture.input_shape, classes=architecture.classes, layers=tuple(layers)
    )


def test_digest_knows_the_network_and_not_its_numbers() -> None:
    rng, seen = random.Random(1), dict[str, Architecture]()
    for seed in range(6):
        architecture = grown(seed)
        other = renumbered(architecture, rng)
        assert [x.id for x in other.layers] != [x.id for x in architecture.layers]
        assert other.digest == architecture.digest
        assert other.signature_layers() == architecture.signature_layers()
        assert other.skips() == architecture.skips()
        seen[architecture.digest] = architecture
    assert len(seen) == 6


def test_every_morph_has_a_digest_of_its_own() -> None:
    architecture = small("laptop")
    children: dict[str, list[Morph]] = {}
    for morph in possible(architecture):
        children.setdefault(apply(architecture, morph).digest, []).append(morph)
    assert architecture.digest not in children
    alike = [morphs for morphs in children.values() if len(morphs) > 1]
    # One more 3×3 before or after a block's own 3×3 is one network; strides tell three of eight.
    assert len(alike) == 5
    assert all(morph.kind == "deepen" for morphs in alike for morph in morphs)


def test_digest_tells_a_shared_layer_from_two_alike() -> None:
    both = {"id": 3, "kind": "add", "inputs": [1, 2]}
    pool = {**POOL, "inputs": [3]}
    two = network(CONV, {**CONV, "id": 2}, both, pool, DENSE)
    shared = network(CONV, {**both, "inputs": [1, 1]}, pool, DENSE)
    assert two.digest != shared.digest


def test_morphs_change_what_they_say() -> None:
    parent = small()
    chain = parent.signature_layers()
    stem = parent.chain[0]
    deeper = apply(parent, Morph(kind="deepen", layer=stem))
    assert deeper.signature_layers() == (chain[0], ("conv", 8, 3, 1), *chain[1:])
    assert deeper.depth == parent.depth + 1
    larger = apply(parent, Morph(kind="kernel", layer=stem, kernel=7))
    assert larger.signature_layers() == (("conv", 8, 7, 2), *chain[1:])
    joined = apply(parent, Morph(kind="skip-concat", layer=parent.chain[1], start=stem))
    assert joined.skips() == ((1, 2, "concat"), *parent.skips())
    end = parent.chain[-3]
    added = apply(parent, Morph(kind="skip-add", layer=end, start=stem))
    assert added.skips() == (*parent.skips(), (1, 10, "add"))
    way = added.layer[max(added.layer) - 1]
    assert (way.kind, way.filters, way.kernel, way.stride) == ("conv", 128, 1, 4)


def test_what_is_added_is_widened_together() -> None:
    parent = small("laptop")
    first = parent.signature_layers()
    adds = [layer for layer in parent.layers if layer.kind == "add"]
    child = apply(parent, Morph(kind="widen", layer=adds[1].inputs[0], filters=48))
    stage = {*adds[0].inputs, adds[1].inputs[0]}
    assert {x.id for x in child.layers if x != parent.layer[x.id]} == stage
    assert all(child.layer[id].filters == 48 for id in stage)
    assert [x[1] for x in first][:7] == [8, 8, 8, 32, 8, 8, 32]
    assert [x[1] for x in child.signature_layers()][:7] == [8, 8, 8, 48, 8, 8, 48]


def test_widths_that_are_added_to_an_image_or_a_concat_stay() -> None:
    to_image = network(
        {**CONV, "filters": 3},
        {"id": 2, "kind": "add", "inputs": [1, 0], "relu": True},
        {**POOL, "inputs": [2]},
        DENSE,
    )
    to_concat = network(
        CONV,
        {**CONV, "id": 2, "filters": 7},
        {"id": 3, "kind": "concat", "inputs": [1, 0]},
        {"id": 4, "kind": "add", "inputs": [3, 2], "relu": True},
        {**POOL, "inputs": [4]},
        DENSE,
    )
    for fixed in (to_image, to_concat):
        assert "widen" not in {morph.kind for morph in possible(fixed)}
        with pytest.raises(UsageError, match="its width is fixed"):
            apply(fixed, Morph(kind="widen", layer=1, filters=8))


def test_wider_by_half_and_by_two_in_whole_eights() -> None:
    stem = small().chain[0]
    widths = [m.filters for m in possible(resnet50()) if m.kind == "widen" and m.layer == stem]
    assert widths == [96, 128]


@pytest.mark.parametrize(
    ("morph", "words"),
    [
        (Morph(kind="deepen", layer=99), "there is no such layer"),
        (Morph(kind="deepen", layer=4), "layer 4 is not an activation on the main chain"),
        (Morph(kind="widen", layer=1, filters=8), "filters is 8: expected more than 8"),
        (Morph(kind="kernel", layer=1, kernel=3), "kernel is 3: expected one of 3, 5, 7 above 5"),
        (Morph(kind="kernel", layer=2, kernel=3), "not a convolution of 3×3"),
        (
            Morph(kind="skip-add", layer=1, start=2),
            "the main chain has no convolution between",
        ),
        (Morph(kind="skip-add", layer=6, start=1), "such a skip from layer 1 already exists"),
        (Morph(kind="skip-add", layer=6), "layer None is not an activation"),
        (Morph(kind="skip-concat", layer=8, start=0), "layer 0 is not an activation"),
        (Morph(kind="skip-concat", layer=8, start=1), "the planes of layers 1 and 8 differ"),
    ],
)
def test_a_morph_that_does_not_fit_is_refused(morph: Morph, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        apply(small(), morph)


def test_kernels_only_grow() -> None:
    for morph in possible(grown(5)):
        if morph.kernel is not None:
            assert morph.kernel in (5, 7)


def test_samples_keep_within_limits_and_are_of_every_kind() -> None:
    start = small()
    limits = Limits(
        parameters=start.parameters * 2,
        operations_per_sample=architecture_cost.ops(start).total * 2,
        memory_bytes=architecture_cost.memory_bytes(start, 8) * 2,
        depth=start.depth + 4,
        batch=8,
    )
    kinds, rng = Counter[str](), random.Random(7)
    for _ in range(6):
        architecture = start
        while (found := sample(architecture, rng, limits)) and sum(kinds.values()) < 400:
            assert apply(architecture, found[0]) == found[1]
            architecture = found[1]
            kinds[found[0].kind] += 1
            assert is_within_limits(architecture, limits)
            assert architecture.parameters <= start.parameters * 2
            assert (
                architecture_cost.ops(architecture, "aiperf").total
                <= architecture_cost.ops(start, "aiperf").total * 2
            )
            assert (
                architecture_cost.memory_bytes(architecture, 8)
                <= architecture_cost.memory_bytes(start, 8) * 2
            )
            assert architecture.depth <= start.depth + 4
            if len(architecture.layers) > 28:
                break
    assert set(kinds) == set(KINDS)


@pytest.mark.parametrize("name", ["parameters", "operations_per_sample", "memory_bytes"])
def test_nothing_is_proposed_where_nothing_fits(name: str) -> None:
    start = small()
    costs = {
        "parameters": start.parameters,
        "operations_per_sample": architecture_cost.ops(start).total,
        "memory_bytes": architecture_cost.memory_bytes(start, 1),
    }
    exact = Limits.model_validate({name: costs[name]})
    assert is_within_limits(start, exact)
    assert exceeded_limits(start, exact) == ()
    assert sample(start, random.Random(1), exact) is None
    less = Limits.model_validate({name: costs[name] - 1})
    assert not is_within_limits(start, less)
    assert [reason.split(":")[0] for reason in exceeded_limits(start, less)] == [name]


def test_kinds_are_drawn_evenly_however_many_places_each_has() -> None:
    rng, start = random.Random(3), small()
    drawn = Counter(found[0].kind for _ in range(500) if (found := sample(start, rng, Limits())))
    assert all(70 <= drawn[kind] <= 130 for kind in KINDS), drawn


def test_one_seed_draws_one_family() -> None:
    assert grown(11).to_json() == grown(11).to_json()
    assert grown(11).digest != grown(12).digest


def test_work_is_a_whole_graph() -> None:
    graph = architecture_cost.graph(grown(2), 4)
    assert Graph.model_validate(json.loads(graph.model_dump_json())) == graph


def test_no_torch_is_needed() -> None:
    code = (
        "import sys; from vflops.workloads.automl.architecture import ("
        "architecture_cost, layer_graph, morphs, starting_networks);"
        "first = starting_networks.small(); architecture_cost.ops(first); morphs.possible(first);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
