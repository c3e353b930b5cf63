"""Weights with several names, of which several stages of a pipeline have a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from vflops.train.communication import Tally
from vflops.train.communication.link import Link
from vflops.train.parallel.cut import StageCut
from vflops.train.parallel.optimizer_state import OptimizerState, first_names


class TiedWeights:
    """The tied weights of a rank; ranks that have the same one sum its gradients.

    Their copies start equal and take the same steps, so that they stay equal. A checkpoint has the
    optimizer state of a tied weight once, by its first name in the whole model.
    """

    def __init__(self, model: nn.Module) -> None:
        """``model`` is whole."""
        self._first_names = first_names(model)
        self._shared: list[tuple[nn.Parameter, Link]] = []

    def connect(
        self, model: nn.Module, cuts: Sequence[StageCut], ranks: int, rank: int, tally: Tally
    ) -> None:
        """Connect the ranks that have the same weight.

        ``model`` has the layers of this ``rank`` of a copy, and ``tally`` counts the traffic. The
        stages are assigned to the ranks in turn.
        """
        own = dict(model.named_parameters())
        for first in dict.fromkeys(self._first_names.values()):
            names = [name for name, other in self._first_names.items() if other == first]
            holders = [
                number
                for number in range(ranks)
                if any(cut.needs(name) for cut in cuts[number::ranks] for name in names)
            ]
            if len(holders) > 1 and rank not in holders:
                Link.leave_out()
            elif len(holders) > 1:
                parameter = next(own[name] for name in names if name in own)
                self._shared.append((parameter, tally.subgroup(holders)))

    def sum_gradients(self) -> None:
        """Sum the gradients over the ranks that have the same weight, which all call it."""
        for parameter, link in self._shared:
            assert parameter.grad is not None
            link.all_reduce(parameter.grad)

    def with_first_names(self, state: OptimizerState) -> OptimizerState:
        """Return the state of this rank's optimizer by first names."""
        return {self._first_names.get(name, name): values for name, values in state.items()}

    def with_all_names(
        self, state: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Mapping[str, Any]]:
        """Return a state from a checkpoint with all names of tied weights."""
        tied = {name: state[first] for name, first in self._first_names.items() if first in state}
        return {**state, **tied}
