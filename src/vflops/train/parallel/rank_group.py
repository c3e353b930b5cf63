"""The ranks of a job as the training loop sees them: their shares of a batch, and their messages.

This is the same in all frameworks. How ranks share a PyTorch model is in ``parallel_plan``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from vflops.workloads.contract.workload import Summary


class RankGroup(ABC):
    """The ranks that train one model together."""

    rank: int
    ranks: int
    agree_every: int
    """Steps between two calls of ``agree``."""
    needs_input = True
    """Whether this rank needs the samples, for the model's input or for the loss."""
    has_output = True
    """Whether this rank has the model's output, and so computes the loss."""

    @property
    def leads(self) -> bool:
        """Whether this rank writes the log and the checkpoints."""
        return self.rank == 0

    @property
    def share(self) -> int:
        """Index of this rank's part of each batch, the same for ranks that share a model copy."""
        return self.rank

    @property
    def shares(self) -> int:
        """Number of parts of a batch."""
        return self.ranks

    @abstractmethod
    def gather(self, value: Summary) -> list[Summary]:
        """Return the values of all ranks that have an output, on every rank."""

    @abstractmethod
    def texts(self, text: str) -> list[str]:
        """Return the texts of all ranks, on every rank."""

    @abstractmethod
    def agree(self, value: int) -> int:
        """Return the maximum of ``value`` over the ranks, on every rank."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait for all ranks."""

    @abstractmethod
    def close(self) -> None:
        """Leave the process group."""
