"""A rule: its id, its title, the function that checks a run, and the files that it reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from vflops.errors import FolderError
from vflops.record.readout.contents import Contents
from vflops.results.check.findings import Finding, Verdict


class Outcome(NamedTuple):
    """The result of checking a rule: a verdict, its evidence, and where the evidence is."""

    verdict: Verdict
    evidence: str
    where: str | None = None


Judge = Callable[[Contents], Outcome | tuple[Verdict, str]]
"""A function that checks a rule. Without ``where``, a path in the evidence gives the location."""


@dataclass(frozen=True)
class Rule:
    """A rule that a run either meets or fails."""

    id: str
    title: str
    """The requirement, as a statement that is true for a valid run."""
    judge: Judge
    section: str = ""
    """The section of the paper; empty for rules that are not from a paper."""
    reads: tuple[str, ...] = ()
    """The files of the run folder that the rule reads."""

    def evaluate(self, contents: Contents) -> Finding:
        """Return the verdict on a run. An unreadable file is a failure, not an error."""
        try:
            outcome = Outcome(*self.judge(contents))
        except FolderError as error:
            outcome = Outcome("fail", error.message)
        except ArithmeticError:
            outcome = Outcome("fail", "cannot be checked: its numbers overflow")
        except Exception as error:  # a damaged file may cause any error: the rule fails
            outcome = Outcome("fail", f"cannot be checked: {type(error).__name__}: {error}")
        where, evidence = _locate(outcome, f"{contents.folder.path}/")
        return Finding(
            rule=self.id,
            title=self.title,
            section=self.section,
            verdict=outcome.verdict,
            evidence=evidence,
            where=where,
            reads=self.reads,
        )


def _locate(outcome: Outcome, root: str) -> tuple[str | None, str]:
    """Return location and evidence with paths relative to the run folder, which may be moved."""
    evidence, where = outcome.evidence, outcome.where
    if where is None and root in evidence:  # compiling a pattern for each run takes longer
        match = re.search(re.escape(root) + r"([^\s:]+(?::\d+)?)", evidence)
        where = match[1] if match else None
    where, evidence = where and where.removeprefix(root), evidence.replace(root, "")
    # The location is printed before the text, so the text does not repeat it.
    text = evidence.removeprefix(where).removeprefix(":").strip() if where else evidence
    return where, text or evidence
