"""Batch size and kernel size by optuna's TPE, from records that the caller keeps.

The study is built anew from the finished records at every call and forgotten after it. So there is
no database to share or to lock: the ledger is the history, and the same records and seed give
the same suggestion on every worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from vflops.data.sampler import mix
from vflops.errors import UsageError

STARTUP = 5
"""Records before which a suggestion is random."""


@dataclass(frozen=True)
class Setting:
    """What is tuned."""

    batch: int
    kernel: int


@dataclass(frozen=True)
class Tried:
    """A setting that was trained with, and the validation accuracy that it gave."""

    setting: Setting
    accuracy: float


@dataclass(frozen=True)
class Space:
    """The sizes to choose from, ascending: neighbours are taken to behave alike."""

    batches: tuple[int, ...]
    kernels: tuple[int, ...] = (3, 5, 7)

    def __post_init__(self) -> None:
        for name, sizes in (("batch", self.batches), ("kernel", self.kernels)):
            if not sizes or sizes[0] < 1 or list(sizes) != sorted(set(sizes)):
                raise UsageError(
                    f"the {name} sizes to tune over are {list(sizes)}",
                    hint="name one or more, ascending, each once, from 1 up",
                )

    def __contains__(self, setting: Setting) -> bool:
        return setting.batch in self.batches and setting.kernel in self.kernels


def suggest(space: Space, tried: Sequence[Tried], seed: int) -> Setting:
    """The setting to try next, to make the accuracy as great as can be.

    Records of settings outside the space (a batch that had to shrink, a kernel that is larger
    than any of them) are left out.
    """
    for record in tried:
        if not isfinite(record.accuracy):
            raise ValueError(f"the accuracy of {record.setting} is {record.accuracy}")
    import optuna  # half a second, where it tunes
    from optuna.distributions import BaseDistribution, IntDistribution

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # else a line on stderr for every study
    # Places instead of sizes: 32, 64, 128 are then as far apart as they matter.
    places: dict[str, BaseDistribution] = {
        "batch": IntDistribution(0, len(space.batches) - 1),
        "kernel": IntDistribution(0, len(space.kernels) - 1),
    }
    # Every call starts a generator: without the count, two random suggestions would be the same.
    sampler = optuna.samplers.TPESampler(
        seed=mix(seed, len(tried)) % 2**32, n_startup_trials=STARTUP, multivariate=True
    )
    study = optuna.create_study(direction="maximize", sampler=sampler, study_name="tuning")
    for record in tried:
        if record.setting in space:
            params = {
                "batch": space.batches.index(record.setting.batch),
                "kernel": space.kernels.index(record.setting.kernel),
            }
            study.add_trial(
                optuna.create_trial(params=params, distributions=places, value=record.accuracy)
            )
    chosen = study.ask(places).params
    return Setting(space.batches[chosen["batch"]], space.kernels[chosen["kernel"]])
