"""A ranking as a JSON document: the lists by performance and by energy, and what is in neither."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import ClassVar

from vflops.publish.ranking.audit_files import UnusableAudit
from vflops.publish.ranking.duplicates import Dispute
from vflops.publish.ranking.entry import Result
from vflops.publish.ranking.entry_audits import JoinedAudits
from vflops.publish.ranking.lists import ENERGY_FACETS, FACETS, Ranked, Ranking, Unranked
from vflops.record.files.document import Data, Document


class RankedResult(Data):
    """A row of a list."""

    rank: int
    run: str
    source: str
    system: str
    day: str | None
    signed: bool
    challenge: str | None = None
    """Who challenged the submitter, and when; None if challenges were not required."""
    audited: JoinedAudits | None = None
    """The audits of the run; None without any."""
    result: Result


class RankedList(Data):
    """One list: results that can be compared with each other, best first."""

    facets: dict[str, str]
    """The properties that all results of the list have in common."""
    results: tuple[RankedResult, ...]


class NotRanked(Data):
    """A submission or a result that is in none of the lists."""

    place: str
    run: str
    workload: str
    reasons: tuple[str, ...]
    audited: JoinedAudits | None = None
    """The audits of the run; None without any."""


class DisputedSubmission(Data):
    """One of several submissions of the same run."""

    place: str
    run: str
    source: str
    day: str | None
    """The day that the submission states, which nobody can check."""
    signed: bool


class DisputedRun(Data):
    """A run that several submitters claim, so that none of the submissions ranks."""

    reason: str
    submissions: tuple[DisputedSubmission, ...]


class Lists(Data):
    """All lists of one ranking, and what is in none of them."""

    lists: tuple[RankedList, ...]
    not_ranked: tuple[NotRanked, ...]


class RankingDocument(Document):
    """What ``vflops ranking --json`` prints."""

    schema_name: ClassVar[str] = "vflops.ranking"

    performance: Lists
    """Ordered by ``score``: VFLOPS with a quality factor of at most 1, or OPS of a search."""
    energy: Lists
    """Results of the performance lists, ordered by ``per_watt``."""
    disputes: tuple[DisputedRun, ...] = ()
    unusable_audits: tuple[UnusableAudit, ...] = ()
    """Audits that cannot be read, or whose runs were not submitted."""


def ranking_document(
    performance: Ranking, energy: Ranking, unusable_audits: tuple[UnusableAudit, ...] = ()
) -> RankingDocument:
    """Return both rankings as a document."""
    return RankingDocument(
        performance=_lists(performance, FACETS),
        energy=_lists(energy, ENERGY_FACETS),
        disputes=tuple(map(_disputed, performance.disputes)),
        unusable_audits=unusable_audits,
    )


def _disputed(dispute: Dispute) -> DisputedRun:
    return DisputedRun(
        reason=dispute.reason,
        submissions=tuple(
            DisputedSubmission(
                place=entry.place,
                run=entry.run,
                source=entry.source,
                day=entry.day,
                signed=entry.signer is not None,
            )
            for entry in dispute.entries
        ),
    )


def _lists(ranking: Ranking, facet_names: Sequence[str]) -> Lists:
    return Lists(
        lists=tuple(
            RankedList(
                facets=dict(zip(facet_names, facets, strict=True)),
                results=tuple(map(_ranked, rows)),
            )
            for facets, rows in groupby(ranking.ranked, key=lambda row: row.facets)
        ),
        not_ranked=tuple(map(_not_ranked, ranking.unranked)),
    )


def _ranked(row: Ranked) -> RankedResult:
    entry = row.entry
    return RankedResult(
        rank=row.rank,
        run=entry.run,
        source=entry.source,
        system=entry.system,
        day=entry.day,
        signed=entry.signer is not None,
        challenge=entry.challenge.text if entry.challenge else None,
        audited=entry.audited,
        result=row.result,
    )


def _not_ranked(row: Unranked) -> NotRanked:
    return NotRanked(
        place=row.entry.place,
        run=row.entry.run,
        workload=row.workload,
        reasons=row.reasons,
        audited=row.entry.audited,
    )
