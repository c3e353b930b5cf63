"""Settings of bagging: how many base models, what each of them learns from."""

from __future__ import annotations

from pydantic import Field

from vflops.config.section import Section


class BaggingSettings(Section):
    """An ensemble of base models: M of HPC AI500 V3.0."""

    models: int = Field(default=1, ge=1, le=65536)
    """Base models, trained side by side; 1 is a plain training on all samples."""
    bootstrap: str = "poisson"
    """How the samples of a model are drawn: poisson, multinomial, none, or a plug-in's."""
    out_of_bag: int = Field(default=1000, ge=0)
    """The most samples that a model has not learned from and is judged by afterwards."""
    attempts: int = Field(default=3, ge=1, le=100)
    """How often a model is tried when its job dies."""
    staging_readers: int = Field(default=8, ge=1, le=4096)
    """Nodes that copy data to their own storage at once."""
    waves: bool = False
    """Whether models that find no place wait for others to end: no claim of weak scaling then."""
    twins: bool = False
    """Whether models 2k and 2k + 1 have one sample and one seed: a diagnostic of the nodes, no
    score of a system. The number of models is even then."""
