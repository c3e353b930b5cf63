"""A history as data: what ``vflops history --json`` prints and the page shows."""

from __future__ import annotations

from typing import ClassVar

from vflops.record.files.document import Data, Document
from vflops.results.figures import Better, Kind
from vflops.studies.compare.comparison import Differing


class Level(Data):
    """Runs in a row between which a figure did not change beyond chance."""

    first: int
    last: int
    """Indices of its runs in the group, both among them."""
    mean: float


class Change(Data):
    """Where a figure came to another level."""

    run: str
    """The first of the new level."""
    after: str
    """The last of the level before."""
    created_utc: str
    difference: float
    """A share of the level before."""
    p: float
    """The chance of two such levels where there is one."""
    worse: bool
    differing: tuple[Differing, ...]
    """What else changed between the two runs: of the system, and the versions."""


class Course(Data):
    """One figure over the runs of a group."""

    workload: str
    name: str
    unit: str | None
    better: Better
    kind: Kind
    values: tuple[float | None, ...]
    """Of each run the mean of its trainings; None: it has none."""
    levels: tuple[Level, ...]
    changes: tuple[Change, ...]
    """Between one level and the next."""
    regression: Change | None
    """From the best earlier level that the newest is worse than, beyond chance; None: there is
    none. A level that got a little better again is no hint."""

    @property
    def title(self) -> str:
        """How it is called where there are others."""
        return f"{self.workload}: {self.name}"


class PastRun(Data):
    """One run of a group."""

    run: str
    folder: str
    """Below the folder that was looked through."""
    created_utc: str
    rules_broken: tuple[str, ...] = ()
    """Of the rules that its profile claims, those that it does not meet."""


class Group(Data):
    """Runs that measured the same thing on the same kind of machine, the oldest first."""

    kind: str
    """A hash of workload, settings (but seed and repeats), data, counting rules and machine."""
    workload: str
    profile: str
    machine: str
    runs: tuple[PastRun, ...]
    unfinished: tuple[PastRun, ...]
    """Newer runs of the same settings that did not come to their end, and do not go on."""
    courses: tuple[Course, ...]
    apart: tuple[str, ...] = ()
    """What tells it from other groups of the same workload and profile, a few of it."""


class LeftOut(Data):
    """A folder that is no finished run that can be read."""

    folder: str
    reason: str


class HistoryRecord(Document):
    """The runs of a folder over time."""

    schema_name: ClassVar[str] = "vflops.history"

    chance: float
    """That results, or ceilings, of a group without any change are given one."""
    least_change: float
    """A share: a smaller change is none."""
    least_runs: int
    """Of a level."""
    groups: tuple[Group, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def stopped(self) -> list[Group]:
        """Groups whose newest runs do not come to their end, while earlier ones did."""
        return [group for group in self.groups if group.unfinished]

    @property
    def regressions(self) -> list[tuple[Group, Course, Change]]:
        """Every figure whose newest level is worse than an earlier one."""
        return [
            (group, course, course.regression)
            for group in self.groups
            for course in group.courses
            if course.regression is not None
        ]
