"""A rank that records the loss of every step, and may be killed after a step or in an evaluation.

``python train_rank.py RUN JOB ATTEMPT`` with ``KILL_AFTER`` steps, ``KILL_IN_EVALUATION``, or
``KILL_WHEN_FINISHED``; with ``SHOW_NOTHING`` its exhibit fails; with ``MEMORY_MB`` it may allocate
no more than that in its first step; with ``EVERY_LOSS`` it waits for an accelerator after every
step, so that each progress event has the loss of its own step; with ``DOUBLE`` it trains in double
precision, where rounding cannot hide a difference between two ways to train.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import Any

import psutil

from tests.support.team_rank import Double, stay_double
from vflops.interruption import run_and_end
from vflops.train import engine, loop, losses, rank
from vflops.train.backends import factory
from vflops.train.backends.array_backend import Recipe
from vflops.workloads.contract.spec import WorkloadSpec

loop._REPORT_S = 0.0
_step = loop.Loop._step
_load_code = WorkloadSpec.load_code
_ready = losses.Losses.ready


def step_then_die(self: loop.Loop, incoming: Any) -> None:
    _step(self, incoming)
    if self.state.step == int(os.environ["KILL_AFTER"]):
        die(self)


def all_ready(self: losses.Losses, *, all: bool = False) -> list[tuple[int, float]]:
    return _ready(self, all=True)


def limited_step(self: loop.Loop, incoming: Any) -> None:
    limit = psutil.Process().memory_info().vms + (int(os.environ["MEMORY_MB"]) << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    loop.Loop._step = _step  # type: ignore[method-assign]
    _step(self, incoming)


def die(owner: Any, *_: Any) -> bool:
    if isinstance(owner, loop.Loop):
        owner._commitments.write(wait=True)  # a checkpoint that was begun is complete
    os.kill(os.getpid(), signal.SIGKILL)
    return True


def fail(*_: Any) -> Any:
    raise OSError(28, "No space left on device")


def double_recipe(**values: Any) -> Recipe:
    return Recipe(**values | {"precision": "fp64"})


def doubled(spec: WorkloadSpec) -> type[Double]:
    return type("Code", (Double, _load_code(spec)), {})


if "KILL_IN_EVALUATION" in os.environ:
    setattr(loop.Loop, "_evaluate", die)  # noqa: B010
if "KILL_WHEN_FINISHED" in os.environ:
    setattr(engine.Engine, "_conclude", die)  # noqa: B010
if "SHOW_NOTHING" in os.environ:
    setattr(engine, "write_exhibit", fail)  # noqa: B010
if "EVERY_LOSS" in os.environ:
    setattr(losses.Losses, "ready", all_ready)  # noqa: B010
if "DOUBLE" in os.environ:
    stay_double()
    setattr(WorkloadSpec, "load_code", doubled)  # noqa: B010
    setattr(factory, "Recipe", double_recipe)  # noqa: B010
if "KILL_AFTER" in os.environ:
    loop.Loop._step = step_then_die  # type: ignore[method-assign]

if "MEMORY_MB" in os.environ:
    loop.Loop._step = limited_step  # type: ignore[method-assign]

if __name__ == "__main__":
    os.environ["VFLOPS_LAUNCHER"] = str(os.getppid())
    # Two threads take twice the CPU time for layers this small. Runs through the command have more.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    run_and_end(rank.main, *sys.argv[1:4])
