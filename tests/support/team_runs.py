"""A team of processes that trains one job with many settings, and the differences of the results.

It uses double precision: in single precision rounding errors of small tensors can grow to a tenth
within a few steps, and a defect may have no larger effect.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.support.shared_device import VARIABLE
from tests.support.team_rank import Case
from tests.support.train_runs import Ranks, planned
from vflops.config.parallel import CommunicationSettings, ParallelSettings
from vflops.config.training import TrainSettings
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import JobRecord
from vflops.run.training_cost import optimizer_states
from vflops.train.parallel.feasibility import footprint
from vflops.train.state_file import unpack
from vflops.workloads.contract.registry import workload as find

PROGRAM = Path(__file__).with_name("team_rank.py")
SMALL = (
    "size=8",
    "resize=8",
    "network.blocks=[1]",
    "network.width=4",
    "synthetic.size=8",
    "synthetic.train=32",
    "synthetic.validation=20",
    "train.batch=16",
    "train.epochs=10",
    "train.evaluate_every=10",
    "train.warmup_epochs=0",
    "train.learning_rate=0.05",
)
"""20 steps of six layers; each message takes a millisecond, and batch norm may send many."""
DEEP = (*SMALL, "network.blocks=[1,1]")
"""Ten layers."""
TEAM = 4


@dataclass(frozen=True)
class Trained:
    """The results of a case."""

    losses: list[float]
    quality: tuple[float, int]
    """The quality, and the number of samples that it was measured on."""
    state: dict[tuple[str, str], Tensor]
    """Weights, statistics and the optimizer's state."""
    recorded: list[tuple[str, dict[str, Any]]]

    def all(self, kind: str) -> list[dict[str, Any]]:
        """Return the payloads of all events of a kind."""
        return [payload for name, payload in self.recorded if name == kind]

    def starts_as(self, other: Trained) -> bool:
        """Whether the initial weights are the same, bit for bit."""
        return self.all("initial") == other.all("initial")

    @property
    def numbers(self) -> int:
        """The numbers that the rank with most of them has in weights, gradients and optimizer."""
        return int(self.all("kept")[-1]["numbers"])

    def far(self, other: Trained, *, statistics: bool = True) -> float:
        """Return the largest difference of a tensor, relative to its norm."""
        assert self.state.keys() == other.state.keys()
        return max(
            float((tensor - other.state[name]).double().norm())
            / (float(other.state[name].double().norm()) + 1e-6)
            for name, tensor in self.state.items()
            if statistics or not name[1].endswith(("running_mean", "running_var", "tracked"))
        )

    def losses_far(self, other: Trained) -> float:
        """Return the largest relative difference of the losses of a step."""
        pairs = zip(self.losses, other.losses, strict=True)
        return max(abs(mine / wanted - 1) for mine, wanted in pairs)


class Team:
    """A job that is planned once, and processes that train it."""

    def __init__(
        self,
        place: Path,
        *settings: str,
        workload: str = "image-classification",
        precision: str = "double",
        device: str = "cpu",
    ) -> None:
        """On a GPU, which the ranks share, steps are not compiled."""
        if device != "cpu":
            settings = ("train.compile=off", *settings)
        folder = planned(place, *settings, workload=workload)
        self._device = device
        self._job, self._place, self._precision = folder.job_file(1), place, precision
        self._base = JobRecord.read(self._job).settings["train"]

    @property
    def graph(self) -> Graph:
        """The graph of a step on one rank."""
        (path,) = self._job.parents[2].glob("graphs/*.json")
        return Graph.read(path)

    def way(self, **changes: Any) -> TrainSettings:
        """Return the job's training settings with these changes."""
        return TrainSettings.model_validate({**self._base, **changes})

    def train(
        self, trainings: Mapping[str, Sequence[TrainSettings]]
    ) -> dict[str, tuple[Trained, Trained]]:
        """Run each training, one setting after the other, and its reference on one rank."""
        cases: dict[str, Case] = {}
        names: dict[str, str] = {}
        for name, ways in trainings.items():
            alone = tuple(reference(way) for way in ways)
            copies = tuple(way.shares if way.accumulate > 1 else 1 for way in ways)
            same = repr([(way.model_dump(mode="json"), copies) for way in alone])
            names.setdefault(same, f"alone-{len(names)}")
            for case, these, reads in ((names[same], alone, copies), (name, ways, None)):
                if case not in cases:
                    cases[case] = _case(case, these, reads, cases.values())
            names[name] = names[same]
        self._run(list(cases.values()))
        return {name: (self._read(name), self._read(names[name])) for name in trainings}

    def planned_numbers(self, way: TrainSettings) -> int:
        """Return the numbers that the plan of a run says a rank keeps, without gathered ones."""
        record = JobRecord.read(self._job)
        spec = find(record.workload)
        settings = spec.settings.model_validate(record.settings)
        code = spec.load_code().create(settings.model_copy(update={"train": way}), record.data)
        found = footprint(code, record.workload, way)
        return replace(found, gathered=0, built=0).numbers(optimizer_states(way))

    def _run(self, cases: list[Case]) -> None:
        path = self._place / "cases.json"
        path.write_text(json.dumps([asdict(case) for case in cases]))
        size = max(way["ranks"] for case in cases for way in case.ways)
        words = [str(PROGRAM), str(self._job), str(path), self._precision]
        ranks = Ranks(words, max(size, TEAM), self._place, **{VARIABLE: self._device})
        while ranks.running():
            time.sleep(0.02)
        logs = [log.read_text()[-2000:] for log in sorted(self._place.glob("rank-*.log"))]
        assert not any(ranks.poll()), "\n".join([f"exit codes {ranks.poll()}", *logs])

    def _read(self, name: str) -> Trained:
        place = self._place / name
        notes = sorted(place.glob("*.json"), key=lambda path: int(path.stem))
        recorded = [tuple(event) for path in notes for event in json.loads(path.read_text())]
        newest = max((place / "checkpoint").glob("*.state"))
        contents = unpack(newest.read_bytes(), newest.name)
        state = {("model", key): tensor for key, tensor in contents["model"].items()}
        for key, kept in contents["optimizer"].items():
            state |= {(key, what): torch.as_tensor(value) for what, value in kept.items()}
        judged = [payload for kind, payload in recorded if kind == "evaluation"][-1]
        losses = [payload["loss"] for kind, payload in recorded if kind == "progress"]
        return Trained(losses, (judged["quality"], judged["evaluated"]), state, recorded)


def reference(way: TrainSettings) -> TrainSettings:
    """Return the settings of one rank whose batch norm sees the same samples.

    The parts of a batch are the same (``accumulate``); with local batch norm there is one ghost
    batch per share.
    """
    ghosts = way.ghosts * (way.shares if way.batch_norm == "local" else 1)
    plain = {"parallel": ParallelSettings(), "communication": CommunicationSettings()}
    one = {"ranks": 1, "batch_norm": "local", "ghosts": ghosts}
    return TrainSettings.model_validate({**way.model_dump(), **plain, **one})


def _case(
    name: str, ways: Sequence[TrainSettings], copies: tuple[int, ...] | None, before: Any
) -> Case:
    """Return a case that runs beside others of as many ranks, if the team is large enough."""
    size = max(way.ranks for way in ways)
    others = sum(max(way["ranks"] for way in case.ways) == size for case in before)
    first = others * size % TEAM if TEAM % size == 0 else 0
    dumped = tuple(way.model_dump(mode="json") for way in ways)
    return Case(name, first, dumped, copies or (1,) * len(ways))
