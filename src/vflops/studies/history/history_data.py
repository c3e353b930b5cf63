"""The data of a history, which ``vflops history --json`` prints and the page shows."""

from __future__ import annotations

from typing import ClassVar

from vflops.record.files.document import Data, Document
from vflops.results.figures import Better, Kind
from vflops.studies.compare.comparison import Differing


class Level(Data):
    """Consecutive runs between which a figure did not change beyond chance."""

    first: int
    last: int
    """The indices in the group of the first and the last run, both inclusive."""
    mean: float


class Change(Data):
    """A change of a figure from one level to another."""

    run: str
    """The first run of the new level."""
    after: str
    """The last run of the previous level."""
    created_utc: str
    difference: float
    """The difference of the means, relative to the previous level."""
    p: float
    """The probability of such a difference by chance."""
    worse: bool
    differing: tuple[Differing, ...]
    """System facts and versions that changed between the two runs."""


class Course(Data):
    """One figure over the runs of a group."""

    workload: str
    name: str
    unit: str | None
    better: Better
    kind: Kind
    values: tuple[float | None, ...]
    """One value per run, the mean of its repeats; None for a run without this figure."""
    levels: tuple[Level, ...]
    changes: tuple[Change, ...]
    """Changes between consecutive levels."""
    regression: Change | None
    """The change from the best earlier level, if the newest level is significantly worse.

    A partial recovery does not end a regression."""

    @property
    def title(self) -> str:
        """The name with its workload, for lists of several workloads."""
        return f"{self.workload}: {self.name}"


class PastRun(Data):
    """One run of a group."""

    run: str
    folder: str
    """The path of the run below the searched folder."""
    created_utc: str
    rules_broken: tuple[str, ...] = ()
    """The rules that the run breaks, from its rule set."""


class Group(Data):
    """Runs of the same measurement on the same kind of machine, oldest first."""

    kind: str
    """A hash of workload, settings (except seed and repeats), data, counting rules and machine."""
    workload: str
    profile: str
    machine: str
    runs: tuple[PastRun, ...]
    unfinished: tuple[PastRun, ...]
    """Newer runs of the same settings that did not finish and are not in progress."""
    courses: tuple[Course, ...]
    apart: tuple[str, ...] = ()
    """A few facts that distinguish the group from others of the same workload and profile."""


class LeftOut(Data):
    """A folder that is not a finished, readable run."""

    folder: str
    reason: str


class HistoryRecord(Document):
    """The runs of a folder over time."""

    schema_name: ClassVar[str] = "vflops.history"

    chance: float
    """The probability of a false change in a group, for each kind of figure."""
    least_change: float
    """The smallest change that counts, as a share."""
    least_runs: int
    """The smallest number of runs of a level."""
    groups: tuple[Group, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def stopped(self) -> list[Group]:
        """Groups whose newest runs did not finish, although earlier ones did."""
        return [group for group in self.groups if group.unfinished]

    @property
    def regressions(self) -> list[tuple[Group, Course, Change]]:
        """Every figure whose newest level is significantly worse than an earlier one."""
        return [
            (group, course, course.regression)
            for group in self.groups
            for course in group.courses
            if course.regression is not None
        ]
