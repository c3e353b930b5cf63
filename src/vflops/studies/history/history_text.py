"""A history as people read it: the rows of its tables, for terminal and page alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from vflops.results.figures import shown
from vflops.studies.compare.compare_text import signed
from vflops.studies.history.history_data import Change, Course, Group, HistoryRecord, PastRun
from vflops.units import percent

COLUMNS = ("figure", "course", "level", "newest", "last change")
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 16
_NAMED = 3
"""Runs that a command names."""


def course_row(course: Course, least_runs: int) -> tuple[str, ...]:
    """A figure as a table has it; ``least_runs`` are those of a level."""
    known = [value for value in course.values if value is not None]
    level, newest = (shown(course.unit, each) for each in (course.levels[-1].mean, known[-1]))
    return course.name, spark(known), level, newest, last_change(course, least_runs)


def by_workload(group: Group) -> list[tuple[str, list[Course]]]:
    """The figures of a group under what they are of."""
    names = dict.fromkeys(each.workload for each in group.courses)
    return [(name, [each for each in group.courses if each.workload == name]) for name in names]


def last_change(course: Course, least_runs: int) -> str:
    """The newest change in words, and what it left to be made good."""
    if not is_told(course, least_runs):
        return "cannot be told yet"
    if not course.changes:
        return "none"
    newest, lost = course.changes[-1], course.regression
    if lost is None or lost.difference == newest.difference:
        return told(newest)
    return f"{told(newest)}; still {signed(lost.difference)} since {lost.created_utc[:10]}"


def told(change: Change) -> str:
    """A change in words: how much, whether that is bad, since when."""
    verdict = "worse" if change.worse else "better"
    return f"{signed(change.difference)} ({verdict}), {change.created_utc[:10]}"


def is_told(course: Course, least_runs: int) -> bool:
    """Whether a figure has runs enough for two levels, so that a change can be seen."""
    return sum(value is not None for value in course.values) >= 2 * least_runs


def good(found: HistoryRecord) -> bool:
    """Whether there is something that could have got worse, and nothing has."""
    courses = (course for group in found.groups for course in group.courses)
    told = any(is_told(course, found.least_runs) for course in courses)
    return told and not found.regressions and not found.stopped


def spark(values: list[float]) -> str:
    """The newest values as bars, the lowest of them to the highest."""
    newest = values[-_WIDTH:]
    low, high = min(newest), max(newest)
    steps = len(_BARS) - 1
    return "".join(
        _BARS[round((value - low) / (high - low) * steps) if high > low else steps // 2]
        for value in newest
    )


def group_title(group: Group) -> str:
    """What the runs of a group are."""
    runs = f"{len(group.runs)} run{'' if len(group.runs) == 1 else 's'}"
    return f"{group.workload}, {group.profile}: {runs}"


def apart(group: Group) -> str | None:
    """What tells a group from others of the same workload and profile."""
    return f"with {', '.join(group.apart)}" if group.apart else None


def moment(utc: str) -> str:
    """A time as a chart and its dots say it."""
    return f"{datetime.fromisoformat(utc).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def span(group: Group) -> str:
    """From when to when."""
    first, last = (run.created_utc[:10] for run in (group.runs[0], group.runs[-1]))
    return first if first == last else f"{first} to {last}"


def regression(group: Group, course: Course, change: Change) -> str:
    """A regression in one sentence, with what else changed at the time."""
    others = [f"{d.name} {d.values[0]} → {d.values[1]}" for d in change.differing[:3]]
    rest = f" and {len(change.differing) - 3} more" if len(change.differing) > 3 else ""
    with_ = f"; what changed with it: {', '.join(others)}{rest}" if others else ""
    words = f"{course.title} {signed(change.difference)} since {change.run}"
    return f"{words} ({group.profile}, {len(group.runs)} runs){with_}"


def stopped(group: Group) -> str:
    """That the newest runs of a group do not come to their end, in one sentence."""
    many = len(group.unfinished)
    runs = "the newest run" if many == 1 else f"the newest {many} runs"
    do = "does not come to its end" if many == 1 else "do not come to their end"
    whole = group.runs[-1].run
    return f"{group.workload}, {group.profile}: {runs} {do}, the last that did is {whole}"


def marked(run: PastRun) -> str:
    """A run by its folder, with a mark where it breaks its rules."""
    broken = ", ".join(run.rules_broken)
    return f"{run.folder} (not valid: {broken})" if broken else run.folder


def breaking(group: Group, place: Callable[[str], str] = str) -> str | None:
    """How many runs of a group break their rules, and the command that says how.

    ``place`` gives the path of a run from its folder.
    """
    broken = [place(run.folder) for run in reversed(group.runs) if run.rules_broken]
    if not broken:
        return None
    newest = "" if len(broken) <= _NAMED else f", of the newest {_NAMED}"
    how = f"vflops check {' '.join(broken[:_NAMED])}"
    return f"{len(broken)} of {len(group.runs)} runs break their rules; how{newest}: {how}"


def method(found: HistoryRecord) -> str:
    """What a change is, in one sentence."""
    return (
        f"A change is {found.least_runs} runs or more that differ from those before them by "
        f"{percent(found.least_change)} or more and beyond chance (circular binary segmentation; "
        f"{percent(found.chance, digits=0)} that any is false among the results of a group, "
        "and as much for its ceilings)."
    )


def short(found: HistoryRecord) -> str | None:
    """That groups are too short to tell of changes."""
    few = [group for group in found.groups if len(group.runs) < 2 * found.least_runs]
    if not few:
        return None
    have = "group has" if len(few) == 1 else "groups have"
    return (
        f"{len(few)} {have} fewer than {2 * found.least_runs} runs: whether anything changed "
        "cannot be told yet."
    )


def value(course: Course, at: int) -> str:
    """The figure of one run."""
    found = course.values[at]
    return "—" if found is None else shown(course.unit, found)
