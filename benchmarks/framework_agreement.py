"""How far the losses of other frameworks are from PyTorch's, and how far PyTorch is from itself.

    python -m benchmarks.framework_agreement [--profile tiny] [--steps 20] [--frameworks jax,…]
                                             [--python .venv-tensorflow/bin/python]

Every training starts with the same weights, takes the same batches, crops and flips, and follows
the profile's schedule. The table has the largest difference of a loss from that of PyTorch in the
same precision. The yardsticks do not involve another framework:

- PyTorch in fp32 against PyTorch in float64: what rounding alone does;
- PyTorch in float64 against itself, with every initial weight changed by 2⁻²⁴ of itself, half of
  what fp32 distinguishes: what training does with a difference of that size, without any rounding;
  and by 2⁻⁵², the last bit of float64.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.framework_environments import add_options, interpreters, measured
from vflops.config.frameworks import FRAMEWORKS

_MODULE = "benchmarks.framework_agreement"
_RATES = ("0.0001", "0.001", "")
"""Peak learning rates; the last is that of the profile."""
_HALF_A_UNIT, _LAST_BIT = 2.0**-24, 2.0**-52
"""Relative changes of the initial weights: that of fp32, and that of float64."""


@dataclass(frozen=True)
class Training:
    """One training, whose losses are compared."""

    framework: str
    rate: str
    double: bool
    perturbation: float = 0.0


def losses(arguments: argparse.Namespace) -> list[float]:
    """The losses of the first steps of a training in this process."""
    if arguments.double:
        _stay_double()
    from benchmarks.train_speed import engine
    from vflops.train.loader import loader

    changes = [*arguments.set, f"train.framework={arguments.one}"]
    if arguments.rate:
        changes.append(f"train.learning_rate={arguments.rate}")
    settings = argparse.Namespace(
        profile=arguments.profile, workload="image-classification", set=changes
    )
    found = []
    with tempfile.TemporaryDirectory() as folder:
        made = engine(settings, Path(folder), epochs=None)
        if arguments.perturbation:
            made.backend.perturb(arguments.perturbation)
        with made.precision.settings():
            loop = made.loop()
            source = loader(loop._samples, loop._requests(0), loop._prepare_batch, made.device)
            parts = made.settings.accumulate
            incoming = iter(source)
            for _ in range(arguments.steps):
                batch = list(islice(incoming, parts))
                found.append(float(made.state.take_step(batch, loop._rate())))
            source.close()
    return found


def _stay_double() -> None:
    """Compute in float64 from here on, as the tests of frameworks do."""
    from tests.support.team_rank import Double, stay_double
    from vflops.train.backends import factory
    from vflops.train.backends.array_backend import Recipe
    from vflops.workloads.contract.spec import WorkloadSpec

    load_code = WorkloadSpec.load_code

    def double_recipe(**values: Any) -> Recipe:
        return Recipe(**values | {"precision": "fp64"})

    stay_double()
    setattr(factory, "Recipe", double_recipe)  # noqa: B010
    setattr(  # noqa: B010
        WorkloadSpec, "load_code", lambda spec: type("Code", (Double, load_code(spec)), {})
    )


class Comparison:
    """Trainings in processes of their own, each done once."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self.pythons = interpreters(arguments)
        self._known: dict[Training, list[float] | None] = {}

    def losses(self, training: Training) -> list[float] | None:
        """Return the losses of a training; None if it failed."""
        if training not in self._known:
            arguments = self._arguments
            words = [f"--{key}={getattr(arguments, key)}" for key in ("profile", "steps")]
            words += [f"--set={item}" for item in arguments.set]
            words += [f"--one={training.framework}", f"--rate={training.rate}"]
            words += [f"--perturbation={training.perturbation}"]
            words += ["--double"] * training.double
            python = self.pythons[training.framework]
            self._known[training] = measured(python, _MODULE, *words)
        return self._known[training]

    def difference(self, one: Training, other: Training) -> str:
        """Return the largest difference of a loss; a dash if a training failed."""
        ours, theirs = self.losses(one), self.losses(other)
        if ours is None or theirs is None:
            return "–"
        return f"{max(abs(a - b) for a, b in zip(ours, theirs, strict=True)):.1e}"


def table(arguments: argparse.Namespace) -> list[list[str]]:
    """The rows of the table, the first of which is its head."""
    comparison = Comparison(arguments)
    named = [f"learning rate {rate}" if rate else "the profile's rate" for rate in _RATES]
    rows = [["", "float64, the profile's rate", *(f"fp32, {name}" for name in named)]]
    doubles = {rate: Training("pytorch", rate, double=True) for rate in _RATES}
    for framework in comparison.pythons:
        if framework == "pytorch":
            continue
        double = "–"  # MindSpore has no convolution in float64 on a CPU
        if framework != "mindspore":
            double = comparison.difference(Training(framework, "", double=True), doubles[""])
        rows.append([FRAMEWORKS[framework].title, double])
        for rate in _RATES:
            ours = Training("pytorch", rate, double=False)
            rows[-1].append(comparison.difference(Training(framework, rate, double=False), ours))
    rows.append(["PyTorch in fp32, from PyTorch in float64", "–"])
    last_bit = Training("pytorch", "", double=True, perturbation=_LAST_BIT)
    rows.append(
        [
            "PyTorch in float64, its first weights changed by 2⁻⁵² and 2⁻²⁴",
            comparison.difference(last_bit, doubles[""]),
        ]
    )
    for rate, exact in doubles.items():
        single = Training("pytorch", rate, double=False)
        changed = Training("pytorch", rate, double=True, perturbation=_HALF_A_UNIT)
        rows[-2].append(comparison.difference(single, exact))
        rows[-1].append(comparison.difference(changed, exact))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", default="tiny")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--one", help="train with this framework here and print the losses as JSON")
    parser.add_argument("--rate", default="")
    parser.add_argument("--perturbation", type=float, default=0.0)
    parser.add_argument("--double", action="store_true")
    add_options(parser)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(losses(arguments)))
        return
    head, *rows = table(arguments)
    for row in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
