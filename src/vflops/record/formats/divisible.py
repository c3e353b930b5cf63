"""How ranks can share a model, as its modules declare: names of modules and weights."""

from __future__ import annotations

from vflops.record.files.document import Data
from vflops.record.formats.bounded_numbers import Positive


class ChannelPair(Data):
    """Layers whose channels ranks can divide: tensor parallelism sums its output and gradient."""

    first: tuple[str, ...]
    """The layers that read the input."""
    second: str
    """The layer whose outputs the ranks sum."""
    counts: dict[str, Positive]
    """What the ranks must divide evenly: channels, or units of them such as heads."""


class Divisible(Data):
    """The modules of a model that ranks can divide, and those that they cannot."""

    whole: tuple[str, ...] = ()
    """Modules that stay on one stage of a pipeline."""
    pairs: tuple[ChannelPair, ...] = ()
    rows: tuple[str, ...] = ()
    """Layers whose rows can be divided: the words of an embedding or of an output layer."""
    blocks: tuple[str, ...] = ()
    """Modules that sharded ranks gather one by one, in the forward and in the backward pass."""
    hidden_matrices: tuple[str, ...] = ()
    """Weights that Muon gathers."""
