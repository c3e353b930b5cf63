"""What the workloads of a run add to the description of its system: the upper three layers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vflops.config.flatten import flatten
from vflops.record.formats.system import Value
from vflops.results.check.level import layer_of
from vflops.run.jobs import Prepared

_PLAIN = (str, int, float, bool)
_ELSEWHERE = ("data", "target")
"""Settings that are told as what they came to."""
_LEARNING = ("train.batch",)
"""The machine's for a level, for how large it may be depends on it; learning depends on it too."""


@dataclass(frozen=True)
class WorkloadLayers:
    """Facts by name, as ``gather`` takes them."""

    implementation: dict[str, Value] = field(default_factory=dict)
    hyper_parameters: dict[str, Value] = field(default_factory=dict)
    problem: dict[str, Value] = field(default_factory=dict)


def workload_layers(prepared: Sequence[Prepared], profile: str) -> WorkloadLayers:
    """Every workload's settings by the layer they belong to, its data and what it is to reach.

    Of several workloads each fact has the workload's name in front.
    """
    found = WorkloadLayers()
    layers = {
        "workload implementation": found.implementation,
        "hyper-parameters": found.hyper_parameters,
        "problem domain": found.problem,
    }
    for each in prepared:
        prefix = f"{each.spec.name} " if len(prepared) > 1 else ""
        found.implementation[f"{prefix}workload"] = each.spec.name
        found.problem.update({f"{prefix}{k}": v for k, v in _problem(each, profile).items()})
        for name, value in flatten(each.settings.model_dump(mode="json")).items():
            layer = "hyper-parameters" if name in _LEARNING else layer_of(name)
            unused = name.startswith("synthetic.") and not each.data.synthetic
            if layer in layers and name not in _ELSEWHERE and value is not None and not unused:
                layers[layer][f"{prefix}{name}"] = _plain(value)
    return found


def _problem(each: Prepared, profile: str) -> dict[str, Value]:
    goal, data = each.goal(profile), each.data
    return {
        "problem": each.spec.name,
        "quality": f"{goal.quality}, {goal.better} is better",
        "target": goal.target,
        "exponent n": goal.exponent,
        "data": "synthetic" if data.synthetic else "real",
        "data fingerprint": data.fingerprint,
        "training samples": data.train,
        "validation samples": data.validation,
        **{f"data {name}": value for name, value in data.facts.items()},
    }


def _plain(value: Any) -> Value:
    return value if isinstance(value, _PLAIN) else json.dumps(value)
