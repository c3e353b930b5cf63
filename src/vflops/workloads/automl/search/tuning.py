"""Tunes batch size and kernel size with optuna's TPE, from results that the caller provides.

Every call builds a new study from the results so far. So there is no database to share or lock, and
the same results and seed give the same suggestion on every worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from vflops.data.sampler import mix
from vflops.errors import UsageError

STARTUP_RESULTS = 5
"""With fewer results than this, suggestions are random."""


@dataclass(frozen=True)
class Setting:
    """The hyperparameters to tune."""

    batch: int
    kernel: int


@dataclass(frozen=True)
class TuningResult:
    """A setting that was tried, and its validation accuracy."""

    setting: Setting
    accuracy: float | None
    """None if it ran out of memory."""


@dataclass(frozen=True)
class Space:
    """The sizes to choose from, ascending; neighbours are assumed to behave similarly."""

    batches: tuple[int, ...]
    kernels: tuple[int, ...] = (3, 5, 7)

    def __post_init__(self) -> None:
        for name, sizes in (("batch", self.batches), ("kernel", self.kernels)):
            if not sizes or sizes[0] < 1 or list(sizes) != sorted(set(sizes)):
                raise UsageError(
                    f"the {name} sizes to tune over are {list(sizes)}",
                    hint="give one or more positive sizes in ascending order, each once",
                )

    def __contains__(self, setting: Setting) -> bool:
        return setting.batch in self.batches and setting.kernel in self.kernels


def suggest(space: Space, results: Sequence[TuningResult], seed: int) -> Setting:
    """Return the setting to try next.

    Results of settings outside the space (a batch that had to be reduced, a larger kernel) are
    ignored. A setting that ran out of memory counts as worse than all that did not.
    """
    for result in results:
        if result.accuracy is not None and not isfinite(result.accuracy):
            raise ValueError(f"the accuracy of {result.setting} is {result.accuracy}")
    import optuna  # takes half a second, so only when tuning
    from optuna.distributions import BaseDistribution, IntDistribution

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # otherwise every study logs a line
    # Indices instead of sizes, so that 32, 64 and 128 are equally far apart.
    indices: dict[str, BaseDistribution] = {
        "batch": IntDistribution(0, len(space.batches) - 1),
        "kernel": IntDistribution(0, len(space.kernels) - 1),
    }
    # Every call starts a new generator: without the count, random suggestions would repeat.
    sampler = optuna.samplers.TPESampler(
        seed=mix(seed, len(results)) % 2**32, n_startup_trials=STARTUP_RESULTS, multivariate=True
    )
    study = optuna.create_study(direction="maximize", sampler=sampler, study_name="tuning")
    for result in results:
        if result.setting in space:
            params = {
                "batch": space.batches.index(result.setting.batch),
                "kernel": space.kernels.index(result.setting.kernel),
            }
            # TPE ignores trials that failed, but learns from those that were pruned.
            states = optuna.trial.TrialState
            state = states.PRUNED if result.accuracy is None else states.COMPLETE
            study.add_trial(
                optuna.create_trial(
                    params=params, distributions=indices, value=result.accuracy, state=state
                )
            )
    chosen = study.ask(indices).params
    return Setting(space.batches[chosen["batch"]], space.kernels[chosen["kernel"]])
