"""The measured ceilings that bound a job: those of the kinds of its own nodes."""

from __future__ import annotations

from dataclasses import dataclass

from vflops.record.formats.measurement import Measurement
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob

LINKS = ("all-reduce", "point-to-point")
"""The benchmarks of links, which measure several nodes at once."""
_MAX_NAMED = 3


@dataclass(frozen=True)
class JobCeilings:
    """The ceilings of the nodes of a job."""

    measurements: tuple[Measurement, ...]
    reason: str | None = None
    """Why these ceilings do not bound the job, for example because a node was not measured."""


def node_kinds(contents: Contents) -> dict[str, str]:
    """Return the kind of each measured node; empty if the run was not on a scheduler's nodes."""
    return {node.node: node.kind for node in contents.measured_nodes}


def job_ceilings(contents: Contents, job: TrainedJob) -> JobCeilings:
    """Return the ceilings of the kinds of nodes on which a job trained, in any of its attempts.

    On the machine that the run was started on, these are all ceilings.
    """
    kinds = contents.once(node_kinds)
    if not kinds:
        return JobCeilings(tuple(contents.measurements))
    names = trained_nodes(job)
    unmeasured = [name for name in names if name not in kinds]
    own = frozenset(kinds[name] for name in names if name in kinds)
    by_kinds = contents.once(_by_kinds)
    if own not in by_kinds:
        by_kinds[own] = tuple(item for item in contents.measurements if _is_of(item, own))
    reason = None
    if not names:
        reason = "the record does not say on which nodes it trained"
    elif unmeasured:
        reason = f"it trained on {few(unmeasured)}, whose ceilings were not measured"
    return JobCeilings(by_kinds[own], reason)


def main_ceilings(contents: Contents) -> tuple[Measurement, ...]:
    """Return the ceilings of one kind of node: that of the first trained job, if it is known.

    Otherwise they are those of the first measured node. Ceilings of several kinds never mix.
    """
    kinds = contents.once(node_kinds)
    if not kinds:
        return tuple(contents.measurements)
    jobs = (*contents.training_jobs, *contents.workers)
    trained = (kinds[name] for job in jobs for name in trained_nodes(job) if name in kinds)
    main = next(trained, None) or next(iter(kinds.values()))
    return tuple(item for item in contents.measurements if _is_of(item, frozenset([main])))


def between_nodes(item: Measurement) -> bool:
    """Whether a ceiling is that of a link between nodes, not of one node."""
    return item.node is not None and ("," in item.node or item.node.endswith(" nodes"))


def trained_nodes(job: TrainedJob) -> tuple[str, ...]:
    """Return the names of the nodes of all attempts of a job that made progress, each once."""
    nodes = (
        node.name
        for attempt, nodes in zip(job.attempts, job.attempt_nodes, strict=False)
        if attempt.has_progress
        for node in nodes
    )
    return tuple(dict.fromkeys(nodes))


def few(names: list[str]) -> str:
    """Return the first names as text, and how many more there are."""
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


def _by_kinds(contents: Contents) -> dict[frozenset[str], tuple[Measurement, ...]]:
    """Return an empty cache, which ``job_ceilings`` fills: many jobs have nodes of one kind."""
    return {}


def _is_of(item: Measurement, kinds: frozenset[str]) -> bool:
    is_link_between_kinds = item.kind is None and item.benchmark in LINKS
    return item.kind in kinds or is_link_between_kinds
