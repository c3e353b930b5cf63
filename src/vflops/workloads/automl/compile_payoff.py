"""Whether a candidate is worth compiling: whichever way its training is over sooner."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

_MEASURED_S = 2.0
"""Of training: a shorter one says little of how fast it is."""

_A_YEAR_S = 3.2e7


@dataclass
class CompileCosts:
    """What training costs on a worker: at first what an H200 needs, then what was measured here."""

    plain_s: float = 1e-14
    """An operation of steps that are not compiled."""
    gain: float = 0.7
    """What compiled steps take of it."""
    compile_s: float = 2.0
    """Compiling a layer, for training and for evaluation."""
    load_s: float = 0.3
    """Taking a layer from the cache, where another process has compiled it."""
    _compiled_s: float | None = field(default=None, init=False)

    def plain(self, ops: int) -> float:
        """Seconds of a training of so many operations that is not compiled."""
        return ops * self.plain_s

    def compiled(self, ops: int, layers: int, ahead_s: float | None = None) -> float:
        """Seconds of one that is, compiling included.

        ``ahead_s``: how long another process has been at it by then; None: none has.
        """
        each = ops * (self._compiled_s or self.gain * self.plain_s)
        if ahead_s is None:
            return layers * self.compile_s + each
        return max(layers * self.compile_s - ahead_s, 0.0) + layers * self.load_s + each

    def compiling_pays(
        self, ops: int, layers: int, ahead_s: float | None = None, left_s: float = math.inf
    ) -> bool:
        """Whether the training is over sooner with it; or, where the time ends before it, what
        could be done without it is."""
        ops = min(ops, int(min(left_s, _A_YEAR_S) / self.plain_s))
        return self.compiled(ops, layers, ahead_s) < self.plain(ops)

    def measured(self, ops: int, training_s: float, *, compiled: bool) -> None:
        """Learn from a training of ``ops`` operations."""
        if training_s < _MEASURED_S:
            return
        if compiled:
            self._compiled_s = training_s / ops
        else:
            self.plain_s = training_s / ops
