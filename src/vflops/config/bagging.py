"""Settings for bagging: the number of base models, and how their training samples are drawn."""

from __future__ import annotations

from pydantic import Field

from vflops.config.section import Section


class BaggingSettings(Section):
    """An ensemble of base models; ``models`` is M in HPC AI500 V3.0."""

    models: int = Field(default=1, ge=1, le=65536)
    """Number of base models, trained concurrently; 1 trains a single model on all samples."""
    bootstrap: str = "poisson"
    """How the samples of a base model are drawn: poisson, multinomial, none, or the name of a
    plug-in."""
    out_of_bag: int = Field(default=1000, ge=0)
    """Maximum number of out-of-bag samples that a model is evaluated on after training."""
    combine_every: int = Field(default=1, ge=0)
    """Every how many evaluations the predictions of all models are combined, which gives the time
    to quality of the ensemble; 0 combines them only after training."""
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
