"""The exact operations of a batch, which those of one sample are a fraction of."""

from __future__ import annotations

from pydantic import Field

from vflops.metrics import ops_of_samples
from vflops.record.files.document import Data


class BatchOps(Data):
    """Operations of a batch of ``batch`` samples.

    Those of one sample may not be an integer, because some operations occur once per batch.
    """

    batch: int = Field(ge=1)
    """The number of samples; 1 if operations per sample were declared."""
    forward: int = Field(ge=0)
    total: int = Field(ge=0)
    """Operations of a training step: forward, backward and update."""

    def of_training(self, samples: int) -> int:
        """Return the operations of training on ``samples`` samples, to the nearest integer."""
        return ops_of_samples(samples=samples, batch_ops=self.total, batch=self.batch)

    def of_evaluation(self, samples: int) -> int:
        """Return the operations of evaluating ``samples`` samples, to the nearest integer."""
        return ops_of_samples(samples=samples, batch_ops=self.forward, batch=self.batch)
