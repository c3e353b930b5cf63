"""Ranked lists from entries, and the reasons of those that do not rank."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from vflops.publish.ranking.entry import Entry, Result
from vflops.publish.ranking.judge import NO_LEVEL
from vflops.publish.ranking.submission_folders import ARCHIVE

FACETS = ("rule set", "workload", "size", "goal", "length", "level", "data", "problem")
"""What all results of a list have in common."""
REFERENCE = "the reference's"


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
    """All submissions."""

    ranked: tuple[Ranked, ...]
    """By list, the best first; equal scores have equal ranks."""
    apart: tuple[Unranked, ...]


def system_id(entry: Entry) -> str:
    """Return the name of a system's page; the same machine from another source has its own."""
    return hashlib.sha256(f"{entry.source}\n{entry.system}".encode()).hexdigest()[:12]


def ranking(entries: Sequence[Entry]) -> Ranking:
    """Rank the results that are verified, valid and unique."""
    entries = _listed(entries)
    doubles = _doubles([entry for entry in entries if not entry.reasons])
    apart: list[Unranked] = []
    rows: list[tuple[tuple[str, ...], Result, Entry]] = []
    bad: dict[object, Entry] = {}
    for entry in entries:
        double = doubles.get(id(entry))
        if entry.reasons or double:
            first = bad.setdefault(_same(entry), entry) if entry.run and entry.reasons else entry
            if first is not entry:
                double = f"a copy of {first.place}, which does not rank either"
            workloads = ", ".join(dict.fromkeys(result.workload for result in entry.results))
            apart.append(Unranked(entry, workloads, (double,) if double else entry.reasons))
            continue
        for result in entry.results:
            if result.reason:
                apart.append(Unranked(entry, result.workload, (result.reason,)))
            else:
                rows.append((_facets(entry, result), result, entry))
    rows.sort(key=lambda row: (row[0], -row[1].score, row[2].day or "", row[2].place))
    return Ranking(tuple(_placed(rows)), tuple(apart))


def _listed(entries: Sequence[Entry]) -> list[Entry]:
    """Return all entries except archives beside the run folder that they hold."""
    beside_folders = {
        (f"{entry.place}{ARCHIVE}", entry.digest) for entry in entries if entry.digest
    }
    return [entry for entry in entries if (entry.place, entry.digest) not in beside_folders]


def _same(entry: Entry) -> object:
    """Return what copies of a run have in common, even if it is not verified."""
    return entry.run, entry.digest, entry.course, entry.reasons


def _facets(entry: Entry, result: Result) -> tuple[str, ...]:
    # Rules of a paper fix the problem; without them an easier problem would share the list.
    own_problem = entry.level == NO_LEVEL or entry.rule_set.startswith("practice/")
    return (
        entry.rule_set,
        result.workload,
        entry.profile,
        result.goal,
        result.length,
        entry.level,
        result.data,
        result.problem if own_problem else REFERENCE,
    )


def _placed(rows: Iterable[tuple[tuple[str, ...], Result, Entry]]) -> Iterable[Ranked]:
    for facets, of_list in groupby(rows, key=lambda row: row[0]):
        rank, last = 0, None
        for number, (_, result, entry) in enumerate(of_list, start=1):
            if result.score != last:
                rank, last = number, result.score
            yield Ranked(entry, result, facets, rank)


def _doubles(entries: Sequence[Entry]) -> dict[int, str]:
    """Return why duplicates do not rank: copies, two runs with one id, one run with two ids."""
    by_run: dict[str, list[Entry]] = {}
    for entry in entries:
        by_run.setdefault(entry.run, []).append(entry)
    reasons: dict[int, str] = {}
    for same in by_run.values():
        if len({entry.digest for entry in same}) > 1:
            places = ", ".join(entry.place for entry in same[:3])
            reason = f"{len(same)} different submissions have the id {same[0].run}: {places}"
            reasons.update({id(entry): reason for entry in same})
        else:
            reasons.update({id(entry): f"a copy of {same[0].place}" for entry in same[1:]})
    return reasons | _rewritten([entry for entry in entries if id(entry) not in reasons])


def _rewritten(entries: Sequence[Entry]) -> dict[int, str]:
    """Return why runs do not rank whose jobs have exactly the event times of another run."""
    by_course: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: (entry.signer is None, entry.day or "")):
        by_course.setdefault(entry.course, []).append(entry)
    return {
        id(copy): f"the run of {first.place} under another id: all its events have the same times"
        for first, *others in by_course.values()
        for copy in others
    }
