"""The workload layers of a system description: implementation, hyper-parameters, problem."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vflops.config.flatten import flatten
from vflops.record.formats.system import Value
from vflops.results.check.level import layer_of
from vflops.run.jobs import PreparedWorkload

_PLAIN = (str, int, float, bool)
_ELSEWHERE = ("data", "target")
"""Settings that the problem layer already describes."""
_LEARNING = ("train.batch",)
"""Hyper-parameters here, although a level treats them as settings of the machine."""


@dataclass(frozen=True)
class WorkloadLayers:
    """Facts by name, in the form that ``gather`` expects."""

    implementation: dict[str, Value] = field(default_factory=dict)
    hyper_parameters: dict[str, Value] = field(default_factory=dict)
    problem: dict[str, Value] = field(default_factory=dict)


def workload_layers(prepared: Sequence[PreparedWorkload], profile: str) -> WorkloadLayers:
    """Return the settings of every workload by layer, with its data and its target.

    If there are several workloads, each fact is prefixed with the workload's name.
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
            layer = "hyper-parameters" if name in _LEARNING else layer_of(name)
            unused = name.startswith("synthetic.") and not workload.data.synthetic
            if layer in layers and name not in _ELSEWHERE and value is not None and not unused:
                layers[layer][f"{prefix}{name}"] = _plain(value)
    return result


def _problem(workload: PreparedWorkload, profile: str) -> dict[str, Value]:
    goal, data = workload.goal(profile), workload.data
    return {
        "problem": workload.spec.name,
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
