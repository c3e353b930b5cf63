"""The figures of a rehearsal: speeds and qualities, but no score."""

from __future__ import annotations

from typing import Any

from vflops.errors import UsageError
from vflops.record.formats.job_events import RanksRehearsed
from vflops.record.readout.contents import Contents
from vflops.results.score.score_file import Score
from vflops.units import quantity

REHEARSAL = "rehearsal: ranks shared devices, so its speeds are no measurement and have no score"
"""What readers of a rehearsal's figures must know."""
_VALID_FLOPS = {"vflops": None, "vflops_capped": None}
_PER_WATT = {"vflops_per_watt": None, "vflops_capped_per_watt": None}


def is_rehearsal(contents: Contents) -> bool:
    """Whether the run says that it rehearses a layout."""
    return contents.folder.record.settings.launch.rehearse


def require_measurement(contents: Contents, use: str) -> None:
    """Raise UsageError if the run is a rehearsal, whose figures are of no use for ``use``."""
    if is_rehearsal(contents):
        raise UsageError(
            f"{contents.folder.path} is a rehearsal, whose speeds are no measurement: {use}",
            hint="name a run that was started without --rehearse",
        )


def memory_text(contents: Contents) -> str | None:
    """Return the memory that a rank took, beside what the ranks had; None if not recorded.

    A rank of the real layout takes as much, on an accelerator of its own.
    """
    jobs = (*contents.training_jobs, *contents.workers)
    events = [event for job in jobs for log in job.logs for event in log.events]
    found = [event.payload(RanksRehearsed) for event in events if event.kind == "rehearsed"]
    if not found:
        return None
    peaks = [peak for item in found for peak in item.peak_bytes]
    on_cpu = any(job.started is not None and job.started.device == "cpu" for job in jobs)
    own = "of memory, its libraries included" if on_cpu else "allocated on its accelerator"
    return (
        f"a rank needs up to {quantity(max(peaks), 'B')} {own}; the {len(peaks)} ranks needed"
        f" {quantity(sum(peaks), 'B')} and shared {quantity(found[0].device_bytes, 'B')}"
        f" {'of memory' if on_cpu else 'per accelerator'} here"
    )


def unscored(score: Score) -> Score:
    """Return the figures of a rehearsal, without VFLOPS and without the scores of searches."""
    trainings = (
        training.model_copy(
            update={
                "speed": training.speed and training.speed.model_copy(update=_VALID_FLOPS),
                **_PER_WATT,
            }
        )
        for training in score.trainings
    )
    per_watt: dict[str, Any] = {**_VALID_FLOPS, **_PER_WATT}
    searches = (
        search.model_copy(
            update={
                "regulated": None,
                "last_regulated": None,
                "ops_per_watt": None,
                "moments": tuple(
                    moment.model_copy(update={"regulated": None}) for moment in search.moments
                ),
                "aiperf": search.aiperf.model_copy(
                    update={
                        "valid": False,
                        "broken": {**search.aiperf.broken, "rehearsal": REHEARSAL},
                    }
                ),
            }
        )
        for search in score.searches
    )
    return score.model_copy(
        update={
            "rehearsal": True,
            "trainings": tuple(trainings),
            "repeats": tuple(item.model_copy(update=_VALID_FLOPS) for item in score.repeats),
            "ensembles": tuple(item.model_copy(update=per_watt) for item in score.ensembles),
            "searches": tuple(searches),
        }
    )
