"""Ranked lists from entries, and the reasons why other entries do not rank.

There are two rankings: by performance (VFLOPS, or OPS of a search), and by energy (per watt).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from vflops.publish.ranking.duplicates import Dispute, find_duplicates
from vflops.publish.ranking.entry import Entry, Result
from vflops.publish.ranking.judge import NO_LEVEL
from vflops.publish.ranking.submission_folders import ARCHIVE

FACETS = ("rule set", "workload", "size", "goal", "length", "level", "data", "problem")
"""The properties that all results of one list have in common."""
ENERGY_FACETS = (*FACETS, "power")
"""The same for lists by energy: also the measured parts of the machine."""
REFERENCE = "the reference's"

Row = tuple[tuple[str, ...], Result, Entry]
"""The facets of a result, the result and its entry."""


@dataclass(frozen=True)
class Ranked:
    """A result with its rank in its list."""

    entry: Entry
    result: Result
    facets: tuple[str, ...]
    rank: int


@dataclass(frozen=True)
class Unranked:
    """A submission or a single result that does not rank."""

    entry: Entry
    workload: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Ranking:
    """Ranked results, and the submissions and results that do not rank."""

    ranked: tuple[Ranked, ...]
    """Sorted by list and figure, best first; equal figures share a rank."""
    unranked: tuple[Unranked, ...]
    disputes: tuple[Dispute, ...] = ()
    """Runs that several submitters claim; their submissions are unranked."""


def system_id(entry: Entry) -> str:
    """Return the name of a system's page; a machine gets one page per source."""
    return hashlib.sha256(f"{entry.source}\n{entry.system}".encode()).hexdigest()[:12]


def ranking(entries: Sequence[Entry]) -> Ranking:
    """Rank the results that are verified, valid and unique."""
    entries = _without_packed_copies(entries)
    duplicates = find_duplicates([entry for entry in entries if not entry.reasons])
    unranked: list[Unranked] = []
    rankable: list[Row] = []
    first_copies: dict[object, Entry] = {}
    for entry in entries:
        duplicate = duplicates.reasons.get(id(entry))
        contradictions = entry.audited.contradictions if entry.audited else ()
        if entry.reasons or duplicate or contradictions:
            first = (
                first_copies.setdefault(_copy_key(entry), entry)
                if entry.run and entry.reasons
                else entry
            )
            if first is not entry:
                duplicate = f"a copy of {first.place}, which does not rank either"
            workloads = ", ".join(dict.fromkeys(result.workload for result in entry.results))
            unranked.append(
                Unranked(
                    entry,
                    workloads,
                    (*contradictions, *((duplicate,) if duplicate else entry.reasons)),
                )
            )
            continue
        for result in entry.results:
            if result.reason:
                unranked.append(Unranked(entry, result.workload, (result.reason,)))
            else:
                rankable.append((_facets(entry, result), result, entry))
    return Ranking(_with_ranks(rankable, _score), tuple(unranked), tuple(duplicates.disputes))


def energy_ranking(by_performance: Ranking) -> Ranking:
    """Rank by figure per watt those results that rank by performance and measured their power.

    The others are unranked, with the reason. What was measured differs between lists only.
    """
    rankable: list[Row] = []
    unranked: list[Unranked] = []
    for row in by_performance.ranked:
        reason = row.result.no_energy_reason
        if reason:
            unranked.append(Unranked(row.entry, row.result.workload, (reason,)))
        else:
            facets = (*row.facets, row.result.power.scope)
            rankable.append((facets, row.result, row.entry))
    return Ranking(_with_ranks(rankable, _per_watt), tuple(unranked))


def _score(result: Result) -> float:
    return result.score


def _per_watt(result: Result) -> float:
    return result.per_watt or 0.0


def _without_packed_copies(entries: Sequence[Entry]) -> list[Entry]:
    """Return all entries except archives that lie next to the same run as a folder."""
    beside_folders = {
        (f"{entry.place}{ARCHIVE}", entry.digest) for entry in entries if entry.digest
    }
    return [entry for entry in entries if (entry.place, entry.digest) not in beside_folders]


def _copy_key(entry: Entry) -> object:
    """Return a key that is equal for copies of a run, even if the run is not verified."""
    return entry.run, entry.digest, entry.course, entry.reasons


def _facets(entry: Entry, result: Result) -> tuple[str, ...]:
    # Rules of a paper fix the problem; otherwise, easier problems need separate lists.
    problem_varies = entry.level == NO_LEVEL or entry.rule_set.startswith("practice/")
    return (
        entry.rule_set,
        result.workload,
        entry.profile,
        result.goal,
        result.length,
        entry.level,
        result.data,
        result.problem if problem_varies else REFERENCE,
    )


def _with_ranks(rows: Iterable[Row], figure: Callable[[Result], float]) -> tuple[Ranked, ...]:
    """Return ``rows`` sorted by list and ``figure``, with ranks."""
    ordered = sorted(
        rows, key=lambda row: (row[0], -figure(row[1]), row[2].day or "", row[2].place)
    )
    ranked: list[Ranked] = []
    for facets, rows_of_list in groupby(ordered, key=lambda row: row[0]):
        rank, last_figure = 0, None
        for number, (_, result, entry) in enumerate(rows_of_list, start=1):
            if figure(result) != last_figure:
                rank, last_figure = number, figure(result)
            ranked.append(Ranked(entry, result, facets, rank))
    return tuple(ranked)
