"""``vflops.compare``: two runs, or repeats of two runs, figure by figure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypedDict

from vflops.api.run import Run
from vflops.studies.compare import compare_text
from vflops.studies.compare.comparing import SEPARATOR, read_sides
from vflops.studies.compare.comparing import compare as compare_sides
from vflops.studies.compare.comparison import Comparison as ComparisonRecord

RunOrPath = Run | str | os.PathLike[str]


class ComparedRow(TypedDict):
    """One figure of both sides; ``a`` and ``b`` are means of the repeats."""

    workload: str
    """The name of the workload; for a ceiling, that of the benchmark."""
    name: str
    unit: str | None
    better: str
    """``higher`` or ``lower``."""
    kind: str
    """``result`` or ``ceiling``."""
    a: float | None
    """None if the side does not have the figure."""
    b: float | None
    repeats_a: int
    repeats_b: int
    difference: float | None
    """(b − a) / a; None for VFLOPS and time to quality if the goals or tasks differ."""
    low: float | None
    high: float | None
    """The 95 % confidence interval of the difference."""
    p: float | None
    verdict: str
    """``better``, ``worse``, ``not significant``, ``equal``, ``cannot tell`` or ``absent``."""
    reason: str | None
    """Why there is no verdict."""


class DifferenceRow(TypedDict):
    """One fact, setting or version that differs between the sides."""

    layer: str
    """The layer of the system, ``settings`` or ``versions``."""
    name: str
    a: str | None
    b: str | None


class Comparison:
    """The figures of B compared with those of A, and what else differs."""

    def __init__(self, record: ComparisonRecord) -> None:
        self._record = record

    @property
    def summary(self) -> str:
        """The outcome in a sentence."""
        return compare_text.sentence(self._record, self._record.sides[1])

    @property
    def warnings(self) -> list[str]:
        """Why the sides, or some of their figures, are not comparable; check this first."""
        return list(self._record.warnings)

    def figures(self) -> list[ComparedRow]:
        """Return one row per figure that either side has."""
        return [
            {
                "workload": figure.workload,
                "name": figure.name,
                "unit": figure.unit,
                "better": figure.better,
                "kind": figure.kind,
                "a": figure.base,
                "b": figure.value,
                "repeats_a": figure.repeats[0],
                "repeats_b": figure.repeats[1],
                "difference": figure.difference,
                "low": figure.low,
                "high": figure.high,
                "p": figure.p,
                "verdict": figure.verdict,
                "reason": figure.reason,
            }
            for figure in self._record.figures
        ]

    def differences(self) -> list[DifferenceRow]:
        """Return one row per fact of the system, setting and version that differs."""
        record = self._record
        return [
            {"layer": row.layer, "name": row.name, "a": row.values[0], "b": row.values[1]}
            for row in (*record.system, *record.settings, *record.versions)
        ]

    def __repr__(self) -> str:
        return f"<vflops.Comparison: {self.summary}>"


def compare(a: RunOrPath | Sequence[RunOrPath], b: RunOrPath | Sequence[RunOrPath]) -> Comparison:
    """Compare B with A, as ``vflops compare`` does.

    :param a: a run or the path of its folder, or several that repeat the same measurement.
    :param b: what is compared with it, likewise; with three or more repeats on each side,
        differences are tested for significance.
    :raises VflopsError: if a folder is not a run, or a run is given twice.
    """
    return Comparison(compare_sides(read_sides([*_paths(a), SEPARATOR, *_paths(b)])))


def _paths(side: RunOrPath | Sequence[RunOrPath]) -> list[str]:
    """Return absolute paths without the separator; raise VflopsError if one is not a run."""
    runs = [side] if isinstance(side, Run | str | os.PathLike) else side
    opened = (run if isinstance(run, Run) else Run(run) for run in runs)
    return [str(run.path.absolute()) for run in opened]
