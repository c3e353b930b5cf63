"""Submissions that claim the same run: copies of one submitter, and disputes between several.

Dates and ids are claims of whoever wrote the folder, so they do not say whose run it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from vflops.publish.ranking.entry import Entry
from vflops.publish.ranking.measured_sketch import are_similar, tokens

_NAMED = 3
"""How many submissions a reason names."""


@dataclass(frozen=True)
class Dispute:
    """Submissions of the same run by different submitters, none of which ranks."""

    entries: tuple[Entry, ...]
    reason: str


@dataclass
class Duplicates:
    """Why duplicates do not rank, by the ``id()`` of the entry, and the disputes among them."""

    reasons: dict[int, str] = field(default_factory=dict)
    disputes: list[Dispute] = field(default_factory=list)

    def dispute(self, entries: Sequence[Entry], same: str) -> None:
        """Rank none of ``entries``, which have ``same`` in common."""
        names = ", ".join(f"{entry.place} ({_claimant(entry)})" for entry in entries[:_NAMED])
        more = f" and {len(entries) - _NAMED} more" if len(entries) > _NAMED else ""
        reason = (
            f"disputed: {same} in {len(entries)} submissions of different submitters: {names}{more}"
        )
        self.disputes.append(Dispute(tuple(entries), reason))
        self.reasons.update({id(entry): reason for entry in entries})


def find_duplicates(entries: Sequence[Entry]) -> Duplicates:
    """Return the duplicates among valid entries."""
    found = Duplicates()
    unique = list(_unique_records(entries, found))
    for group in _same_measurements(unique):
        if len(group) > 1:
            _judge_copies(group, found)
    _judge_challenges([entry for entry in unique if id(entry) not in found.reasons], found)
    by_run: dict[str, list[Entry]] = {}
    for entry in unique:
        by_run.setdefault(entry.run, []).append(entry)
    for same_id in by_run.values():
        undisputed = [entry for entry in same_id if id(entry) not in found.reasons]
        if len(same_id) > 1 and undisputed:
            places = ", ".join(entry.place for entry in same_id[:_NAMED])
            reason = f"{len(same_id)} different submissions have the id {same_id[0].run}: {places}"
            found.reasons.update({id(entry): reason for entry in undisputed})
    return found


def _unique_records(entries: Sequence[Entry], found: Duplicates) -> Iterable[Entry]:
    """Yield the first entry of each record, unless several people signed the same record."""
    by_record: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        by_record.setdefault((entry.run, entry.digest), []).append(entry)
    for first, *copies in by_record.values():
        if len({entry.signer for entry in (first, *copies)}) > 1:
            found.dispute([first, *copies], "the same record, signed by different keys,")
            continue
        yield first
        found.reasons.update({id(copy): f"a copy of {first.place}" for copy in copies})


def _judge_copies(group: Sequence[Entry], found: Duplicates) -> None:
    """Decide on entries with the same measurements but different records."""
    if len({_claimant(entry) for entry in group}) == 1 and group[0].source:
        first, *others = sorted(group, key=lambda entry: (entry.day or "", entry.place))
        reason = f"a copy of {first.place} under another id: it has the same measurements"
        found.reasons.update({id(other): reason for other in others})
    else:
        found.dispute(group, "the same measurements")


def _judge_challenges(entries: Sequence[Entry], found: Duplicates) -> None:
    """Rank only the first of several runs of a workload that answer a challenge with one number.

    They have all seeds in common, so they are not independent.
    """
    first_uses: dict[tuple[str, int, str], Entry] = {}
    for entry in sorted(entries, key=lambda entry: (entry.day or "", entry.place)):
        challenge = entry.challenge
        if challenge is None:
            continue
        keys = [(challenge.nonce, challenge.number, result.workload) for result in entry.results]
        first = next((first_uses[key] for key in keys if key in first_uses), None)
        if first is None:
            first_uses.update(dict.fromkeys(keys, entry))
        else:
            used = f"run {challenge.number} of its challenge is that of {first.place}"
            found.reasons[id(entry)] = f"{used}: every run needs its own --seed"


def _claimant(entry: Entry) -> str:
    """Return who claims a run: its signer, or else the folder that holds it."""
    if entry.signer is not None:
        return f"signed by {entry.signer}"
    return f"folder {entry.source}" if entry.source else "unsigned"


def _same_measurements(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Return groups of entries whose jobs have the same event times, or similar sketches."""
    groups: list[list[Entry]] = []
    by_token: dict[str, list[int]] = {}
    for entry in entries:
        keys = [entry.course, *tokens(entry.durations), *tokens(entry.readings)]
        candidates = dict.fromkeys(number for key in keys for number in by_token.get(key, ()))
        number = next((n for n in candidates if _is_copy(entry, groups[n][0])), None)
        if number is None:  # only the first of a group is compared with others
            groups.append([entry])
            for key in keys:
                by_token.setdefault(key, []).append(len(groups) - 1)
        else:
            groups[number].append(entry)
    return groups


def _is_copy(entry: Entry, other: Entry) -> bool:
    return (
        bool(entry.course and entry.course == other.course)
        or are_similar(entry.durations, other.durations)
        or are_similar(entry.readings, other.readings)
    )
