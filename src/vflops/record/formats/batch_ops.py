"""The exact operations of a batch, which those of one sample are a fraction of."""

from __future__ import annotations

from vflops.metrics import ops_of_samples
from vflops.record.files.document import Data
from vflops.record.formats.bounded_numbers import Operations, Positive


class BatchOps(Data):
    """Operations of a batch of ``batch`` samples.

    Those of one sample may not be an integer, because some operations occur once per batch.
    """

    batch: Positive
    """The number of samples; 1 if operations per sample were declared."""
    forward: Operations
    total: Operations
    """Operations of a training step: forward, backward and update."""

    def of_training(self, samples: int) -> int:
        """Return the operations of training on ``samples`` samples, to the nearest integer."""
        return ops_of_samples(samples=samples, batch_ops=self.total, batch=self.batch)

    def of_evaluation(self, samples: int) -> int:
        """Return the operations of evaluating ``samples`` samples, to the nearest integer."""
        return ops_of_samples(samples=samples, batch_ops=self.forward, batch=self.batch)
