"""Runs that answer a challenge: their seeds follow from it."""

from __future__ import annotations

from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.record.formats.challenge import (
    MAX_RUNS,
    Challenge,
    ChallengedRun,
    draws_data,
    utc_text,
)
from vflops.results.check.clock_rules import MAX_CLOCK_STEP_S
from vflops.workloads.contract.registry import workload


def challenged(
    settings: Settings, challenge: Challenge, now_s: float
) -> tuple[Settings, ChallengedRun]:
    """Return the settings with the seeds that follow from the challenge, and what is recorded.

    ``settings.seed`` is the number of the run. Raise if the run cannot be an answer.
    """
    _check_time(challenge, now_s)
    if settings.launch.rehearse:
        raise UsageError(
            "a rehearsal cannot answer a challenge: it has no score", hint="leave out --rehearse"
        )
    if settings.seed >= MAX_RUNS:
        raise UsageError(
            f"seed {settings.seed} is not the number of a run of a challenge, from 0 to "
            f"{MAX_RUNS - 1}",
            hint="with --challenge, --seed selects one of its runs, e.g. --seed 2",
        )
    for name, section in settings.workloads.items():
        _check_workload(name, section, settings.profile)
    run = ChallengedRun(issued=challenge, number=settings.seed)
    return run.seeded(settings), run


def _check_time(challenge: Challenge, now_s: float) -> None:
    if now_s >= challenge.expires_s:
        raise UsageError(
            f"the challenge expired at {challenge.expires_utc}",
            hint="ask the keeper of the list for a new one",
        )
    if now_s < challenge.issued_s - MAX_CLOCK_STEP_S:
        raise UsageError(
            f"the challenge was issued at {challenge.issued_utc}, but it is {utc_text(now_s)} by "
            "the clock of this machine",
            hint="set the clock: a run that seems to precede its challenge is not accepted",
        )


def _check_workload(name: str, section: dict[str, object], profile: str) -> None:
    """Raise if a workload has seeds of its own."""
    search = section.get("search")
    if isinstance(search, dict) and search.get("ledger") is not None:
        raise UsageError(
            f"{name} is a replay, which has the seeds of its ledger and cannot answer a challenge",
            hint="leave out search.ledger, or leave out --challenge",
        )
    if not draws_data(section):
        return
    seed, default = _data_seed(section), _data_seed(workload(name).profile(profile).model_dump())
    if seed != default:
        raise UsageError(
            f"{name}.synthetic.seed = {seed} is set, but the challenge determines it",
            hint="leave it out; --seed selects another run of the challenge, with other data",
        )


def _data_seed(section: dict[str, object]) -> object:
    synthetic = section["synthetic"]
    return synthetic["seed"] if isinstance(synthetic, dict) else None
