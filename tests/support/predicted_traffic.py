"""The traffic that ``vflops predict`` expects of a team's training, and what the team recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.team_runs import Team, Trained
from vflops.record.formats.graph import Graph
from vflops.studies.predict.divided_traffic import divided_traffic
from vflops.studies.predict.inputs import parse_inputs
from vflops.studies.predict.scaling_model import predict
from vflops.studies.predict.stage_traffic import find_cuts

_DOUBLE = 2
"""A team trains in double precision, the graph and predictions are in single precision."""
_EXTRA = 0.003
"""What rotary positions and norms of heads add, of this shape; their bytes are not predicted."""


@dataclass(frozen=True)
class PredictedTraffic:
    """A training with two ranks."""

    team: Team
    way: Mapping[str, Any]
    trained: Trained

    @property
    def fits(self) -> bool:
        """Whether the recorded bytes are those predicted.

        They are the same for GPT-2 style.
        """
        recorded, expected = self._recorded, self._predicted
        if any("rotations" in node.scope for node in self.team.graph.nodes):
            return expected <= recorded <= (1 + _EXTRA) * expected
        return recorded == expected

    def __repr__(self) -> str:
        return f"recorded {self._recorded}, predicted {self._predicted}"

    @property
    def _recorded(self) -> float:
        """The bytes of a step, as in single precision."""
        sent = self.trained.all("exchange")
        total = sum(item["bytes_near"] + item["bytes_far"] for item in sent)
        return float(total / sent[0]["steps"] / _DOUBLE)

    @property
    def _predicted(self) -> float:
        graph = self.team.graph
        assert graph.divisible is not None
        ways = self.team.way(**self.way)
        cuts, divided, batch = find_cuts(graph), divided_traffic(graph, graph.divisible), 32
        assert cuts is not None and ways.batch == 2 * batch
        inputs = parse_inputs(
            {
                "step": {"time_s": 1.0, "batch": batch},
                "node": {"accelerators": 2, "bandwidth": 1.0, "latency_s": 0.0},
                "model": {
                    "gradient_bytes": 4 * graph.parameter_count,
                    "activation_bytes": batch * cuts.activation_bytes,
                    "layers": cuts.layers,
                    "sums": divided.sums,
                    "sum_bytes": batch * divided.sum_bytes,
                    "block_bytes": divided.block_bytes,
                    "tied_bytes": divided.tied_bytes,
                    "gathered_bytes": divided.hidden_bytes if ways.optimizer == "muon" else 0,
                },
                "parallel": ways.parallel.model_dump(),
                "train": {"accumulate": ways.accumulate},
            }
        )
        sent = predict(inputs, 1, 2).sent_bytes
        return sent + _sent_by_gloo(graph) if self._mode == "sharded" else sent

    @property
    def _mode(self) -> str:
        return str(self.way.get("parallel", {}).get("mode", "data"))


def _sent_by_gloo(graph: Graph) -> int:
    """Return what two sharded ranks send beyond a prediction.

    Gloo reduces and scatters by an all-reduce, which sends everything twice. Weights with an odd
    number of rows are padded by one: those of 65 words, which are gathered once.
    """
    padded = 0
    for name, elements in graph.parameters.items():
        shapes = [value.shape for value in graph.values if value.parameter == name]
        rows = next(shape for shape in shapes if math.prod(shape) == elements)[0]
        padded += 4 * elements // rows if rows % 2 else 0
    return 4 * graph.parameter_count + 3 * padded
