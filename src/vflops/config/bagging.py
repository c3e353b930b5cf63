"""Settings of bagging: the number of base models, and the samples that each is trained on."""

from __future__ import annotations

from pydantic import Field

from vflops.config.section import Section


class BaggingSettings(Section):
    """An ensemble of base models: M of HPC AI500 V3.0."""

    models: int = Field(default=1, ge=1, le=65536)
    """Base models, trained side by side; 1 is a plain training on all samples."""
    bootstrap: str = "poisson"
    """How the samples of a model are drawn: poisson, multinomial, none, or a plug-in's name."""
    out_of_bag: int = Field(default=1000, ge=0)
    """The most out-of-bag samples that a model is evaluated on after its training."""
    attempts: int = Field(default=3, ge=1, le=100)
    """How often a job is started before its model is given up."""
    staging_readers: int = Field(default=8, ge=1, le=4096)
    """Nodes that may copy data to their local storage at the same time."""
    waves: bool = False
    """Whether models without a free slot wait for others to finish; not weak scaling then."""
    twins: bool = False
    """Whether models 2k and 2k + 1 share sample and seed: a diagnostic of the nodes, not a score of
    the system. The number of models must be even."""
