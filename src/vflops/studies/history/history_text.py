"""The table rows and sentences of a history, for the terminal and the HTML page."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from vflops.results.figures import format_value
from vflops.studies.compare.compare_text import signed
from vflops.studies.history.history_data import Change, Course, Group, HistoryRecord, PastRun
from vflops.units import percent

COLUMNS = ("figure", "trend", "level", "newest", "last change")
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 16
_MAX_NAMED = 3
"""The largest number of runs that a suggested command names."""


def course_row(course: Course, least_runs: int) -> tuple[str, ...]:
    """Return the row of one figure; ``least_runs`` is the smallest number of runs of a level."""
    known = [value for value in course.values if value is not None]
    level, newest = (
        format_value(course.unit, value) for value in (course.levels[-1].mean, known[-1])
    )
    return course.name, spark(known), level, newest, last_change(course, least_runs)


def by_workload(group: Group) -> list[tuple[str, list[Course]]]:
    """Return the figures of a group, grouped by workload."""
    names = dict.fromkeys(course.workload for course in group.courses)
    return [
        (name, [course for course in group.courses if course.workload == name]) for name in names
    ]


def last_change(course: Course, least_runs: int) -> str:
    """Return the newest change in words, and a regression that it does not fully undo."""
    if not has_enough_runs(course, least_runs):
        return "too few runs"
    if not course.changes:
        return "none"
    newest, lost = course.changes[-1], course.regression
    if lost is None or lost.difference == newest.difference:
        return change_words(newest)
    return f"{change_words(newest)}; still {signed(lost.difference)} since {lost.created_utc[:10]}"


def change_words(change: Change) -> str:
    """Return a change in words: how much, whether better or worse, and since when."""
    verdict = "worse" if change.worse else "better"
    return f"{signed(change.difference)} ({verdict}), {change.created_utc[:10]}"


def has_enough_runs(course: Course, least_runs: int) -> bool:
    """Whether a figure has enough runs for two levels, so that a change can be detected."""
    return sum(value is not None for value in course.values) >= 2 * least_runs


def good(record: HistoryRecord) -> bool:
    """Whether there are enough runs to detect regressions, and there is none."""
    courses = (course for group in record.groups for course in group.courses)
    judged = any(has_enough_runs(course, record.least_runs) for course in courses)
    return judged and not record.regressions and not record.stopped


def spark(values: list[float]) -> str:
    """Return the newest values as a line of bars, scaled from the lowest to the highest."""
    newest = values[-_WIDTH:]
    low, high = min(newest), max(newest)
    steps = len(_BARS) - 1
    return "".join(
        _BARS[round((value - low) / (high - low) * steps) if high > low else steps // 2]
        for value in newest
    )


def group_title(group: Group) -> str:
    """Return the workload, the profile and the number of runs of a group."""
    runs = f"{len(group.runs)} run{'' if len(group.runs) == 1 else 's'}"
    return f"{group.workload}, {group.profile}: {runs}"


def apart(group: Group) -> str | None:
    """Return what distinguishes a group from others of the same workload and profile."""
    return f"with {', '.join(group.apart)}" if group.apart else None


def format_time(utc: str) -> str:
    """Return a time in UTC, as tooltips show it."""
    return f"{datetime.fromisoformat(utc).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def span(group: Group) -> str:
    """Return the dates of the first and the last run of a group."""
    first, last = (run.created_utc[:10] for run in (group.runs[0], group.runs[-1]))
    return first if first == last else f"{first} to {last}"


def regression(group: Group, course: Course, change: Change) -> str:
    """Return a regression in one sentence, with what else changed at the time."""
    others = [f"{d.name} {d.values[0]} → {d.values[1]}" for d in change.differing[:3]]
    rest = f" and {len(change.differing) - 3} more" if len(change.differing) > 3 else ""
    causes = f"; changed at the same time: {', '.join(others)}{rest}" if others else ""
    regressed = f"{course.title} {signed(change.difference)} since {change.run}"
    return f"{regressed} ({group.profile}, {len(group.runs)} runs){causes}"


def stopped(group: Group) -> str:
    """Return a sentence that the newest runs of a group did not finish."""
    count = len(group.unfinished)
    runs = "the newest run" if count == 1 else f"the newest {count} runs"
    last = group.runs[-1].run
    return f"{group.workload}, {group.profile}: {runs} did not finish; the last that did is {last}"


def marked(run: PastRun) -> str:
    """Return the folder of a run, with a remark if the run breaks rules."""
    broken = ", ".join(run.rules_broken)
    return f"{run.folder} (not valid: {broken})" if broken else run.folder


def breaking(group: Group, path_of: Callable[[str], str] = str) -> str | None:
    """Return how many runs of a group break rules, and the command that lists them.

    ``path_of`` returns the path to show for a run's folder.
    """
    broken = [path_of(run.folder) for run in reversed(group.runs) if run.rules_broken]
    if not broken:
        return None
    newest = "" if len(broken) <= _MAX_NAMED else f" (the newest {_MAX_NAMED})"
    command = f"vflops check {' '.join(broken[:_MAX_NAMED])}"
    return f"{len(broken)} of {len(group.runs)} runs break their rules; see{newest}: {command}"


def method(record: HistoryRecord) -> str:
    """Return the definition of a change in one sentence."""
    return (
        f"A change is at least {record.least_runs} runs that differ from those before them by "
        f"{percent(record.least_change)} or more and significantly (circular binary segmentation; "
        f"a {percent(record.chance, digits=0)} chance of any false change among the results of a "
        "group, and the same for its ceilings)."
    )


def short(record: HistoryRecord) -> str | None:
    """Return a sentence if groups have too few runs to detect changes; None if all have enough."""
    few = [group for group in record.groups if len(group.runs) < 2 * record.least_runs]
    if not few:
        return None
    have = "group has" if len(few) == 1 else "groups have"
    return f"{len(few)} {have} fewer than {2 * record.least_runs} runs, too few to detect changes."


def value(course: Course, run_index: int) -> str:
    """Return the figure of one run of the group."""
    figure = course.values[run_index]
    return "—" if figure is None else format_value(course.unit, figure)
