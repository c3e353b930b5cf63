"""How many copies of a model the batch of a profile suits."""

from __future__ import annotations

from dataclasses import dataclass

from vflops.config.training import TrainSettings
from vflops.workloads.contract.spec import WorkloadSpec

_LEAST_STEPS = 20
"""Steps of an epoch below which a recipe is not that of its profile any more."""
_LEAST_SAMPLES = 8
"""Samples of a batch below which the batch norm of a rank has no statistics."""


@dataclass(frozen=True)
class BatchFault:
    """Why the batch of a profile does not suit the ranks of a run."""

    text: str
    hint: str
    suitable: int | None
    """A batch that is large enough for the ranks; None if the data is too small for one."""

    @property
    def of_real_run(self) -> str:
        """The same about the run that a rehearsal stands for."""
        return f"the real run would be refused: {self.text}; {self.hint}"


def batch_fault(
    profile: str, spec: WorkloadSpec, train: TrainSettings, samples: int | None = None
) -> BatchFault | None:
    """Return why the batch of a profile does not suit this many ranks, if it suits fewer.

    Each copy of the model needs enough samples of a batch, and an epoch enough batches. A batch
    that the user chose is not questioned. ``samples`` is the size of the training set, if known.
    """
    most = most_copies(profile, spec, train, samples)
    if most is None or train.shares <= most:
        return None
    suitable: int | None = train.shares * train.accumulate * train.ghosts * _LEAST_SAMPLES
    if _of_profile(profile, spec).batch_per_rank:
        suitable = None
        few = f"{(samples or 0) // train.batch} steps an epoch, fewer than {_LEAST_STEPS}"
    else:
        few = f"{train.batch // train.shares} samples a rank, fewer than {_LEAST_SAMPLES}"
    return BatchFault(
        f"{spec.name} with profile {profile} has a batch of {train.batch}: {train.ranks} ranks"
        f" leave {few}",
        f"use --ranks {most * (train.ranks // train.shares)} or fewer, or set another train.batch",
        suitable,
    )


def most_copies(
    profile: str, spec: WorkloadSpec, train: TrainSettings, samples: int | None = None
) -> int | None:
    """Return the largest number of copies of the model that the batch of the profile suits.

    Return None for a batch that the user chose. A batch that is too small for a single copy already
    can be divided as far as each copy has a sample.
    """
    if profile not in spec.profiles:
        return None
    default = _of_profile(profile, spec)
    per_copy = default.batch_per_rank
    if train.batch != (per_copy * train.shares if per_copy else default.batch):
        return None
    if per_copy:
        return (samples // (per_copy * _LEAST_STEPS) or None) if samples else None
    most = default.batch // _LEAST_SAMPLES
    return max((n for n in range(1, most + 1) if default.batch % n == 0), default=default.batch)


def _of_profile(profile: str, spec: WorkloadSpec) -> TrainSettings:
    return spec.profile(profile).train
