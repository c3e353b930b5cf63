"""Settings for bagging: the number of base models, and how their training samples are drawn."""

from __future__ import annotations

import math

from pydantic import Field

from vflops.config.section import Section

_MAX_COMBINED = 2048
"""The largest number of predictions, of all models and evaluations, that are combined by default;
for 50,000 samples of 1,000 classes this takes minutes."""


class BaggingSettings(Section):
    """An ensemble of base models; ``models`` is M in HPC AI500 V3.0."""

    models: int = Field(default=1, ge=1, le=65536)
    """Number of base models, trained concurrently; 1 trains a single model on all samples."""
    bootstrap: str = "poisson"
    """How the samples of a base model are drawn: poisson, multinomial, none, or the name of a
    plug-in."""
    out_of_bag: int = Field(default=1000, ge=0)
    """Maximum number of out-of-bag samples that a model is evaluated on after training."""
    combine_every: int | None = Field(default=None, ge=0)
    """Every how many evaluations the predictions of all models are combined, which gives the time
    to quality of the ensemble; 0 combines them only after training. None is every evaluation, or
    fewer of so many models that combining would take long."""
    attempts: int = Field(default=3, ge=1, le=100)
    """How often a job is started before it is given up."""
    staging_readers: int = Field(default=8, ge=1, le=4096)
    """Maximum number of nodes that copy data to their local storage at the same time."""
    waves: bool = False
    """Whether models that find no free slot wait for others to finish; the run is then not a
    weak-scaling measurement."""
    twins: bool = False
    """Whether models 2k and 2k + 1 share sample and seed. This diagnoses nodes and does not score
    the system; the number of models must be even."""

    def combine_interval(self, models: int, evaluations: int) -> int:
        """Return every how many of ``evaluations`` the predictions are combined."""
        if models == 1:
            return 0
        if self.combine_every is not None:
            return self.combine_every
        return max(math.ceil(models * evaluations / _MAX_COMBINED), 1)
