"""The layers of a system description that depend on workloads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vflops.config.flatten import flatten
from vflops.record.formats.job import data_kind
from vflops.record.formats.system import Value
from vflops.results.check.level import layer_of
from vflops.run.jobs import PreparedWorkload

_PLAIN_TYPES = (str, int, float, bool)
_IN_PROBLEM_LAYER = ("data", "target")
"""Settings that the problem layer already describes."""
_HYPER_PARAMETERS = ("train.batch",)
"""Settings described as hyper-parameters, although ``layer_of`` assigns another layer."""


@dataclass(frozen=True)
class WorkloadLayers:
    """Facts by name for each layer, in the form that ``gather`` expects."""

    implementation: dict[str, Value] = field(default_factory=dict)
    hyper_parameters: dict[str, Value] = field(default_factory=dict)
    problem: dict[str, Value] = field(default_factory=dict)


def workload_layers(prepared: Sequence[PreparedWorkload], profile: str) -> WorkloadLayers:
    """Return the settings, data and targets of all workloads by layer.

    If there are several workloads, the name of each fact starts with that of its workload.
    """
    result = WorkloadLayers()
    layers = {
        "workload implementation": result.implementation,
        "hyper-parameters": result.hyper_parameters,
        "problem domain": result.problem,
    }
    for workload in prepared:
        prefix = f"{workload.spec.name} " if len(prepared) > 1 else ""
        result.implementation[f"{prefix}workload"] = workload.spec.name
        result.problem.update({f"{prefix}{k}": v for k, v in _problem(workload, profile).items()})
        for name, value in flatten(workload.settings.model_dump(mode="json")).items():
            layer = "hyper-parameters" if name in _HYPER_PARAMETERS else layer_of(name)
            unused = name.startswith("synthetic.") and not workload.data.synthetic
            if (
                layer in layers
                and name not in _IN_PROBLEM_LAYER
                and value is not None
                and not unused
            ):
                layers[layer][f"{prefix}{name}"] = _plain(value)
    return result


def _problem(workload: PreparedWorkload, profile: str) -> dict[str, Value]:
    goal, data = workload.goal(profile), workload.data
    return {
        "problem": workload.spec.name,
        "quality": f"{goal.quality}, {goal.better} is better",
        "target": goal.target,
        "exponent n": goal.exponent,
        "data": data_kind(data.synthetic),
        "data fingerprint": data.fingerprint,
        "training samples": data.train,
        "validation samples": data.validation,
        **{f"data {name}": value for name, value in data.facts.items()},
    }


def _plain(value: Any) -> Value:
    return value if isinstance(value, _PLAIN_TYPES) else json.dumps(value)
