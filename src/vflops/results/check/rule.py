"""What a rule is: an id, where it stands, what it reads, and a judge of the run folder."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from vflops.errors import FolderError
from vflops.record.readout.contents import Contents
from vflops.results.check.findings import Finding, Verdict


class Outcome(NamedTuple):
    """What a judge found: its verdict, what it rests on, and the file and line of that."""

    verdict: Verdict
    evidence: str
    where: str | None = None


Judge = Callable[[Contents], Outcome | tuple[Verdict, str]]
"""Evidence that begins with a file of the run, ``…/events.jsonl:3: words``, names its place."""


@dataclass(frozen=True)
class Rule:
    """A rule that a run meets or not."""

    id: str
    title: str
    """What it asks, as a sentence that is true of a good run."""
    judge: Judge
    section: str = ""
    """Of the paper that asks for it; empty where it is a rule of ours."""
    reads: tuple[str, ...] = ()
    """The files of the run folder that it looks at."""

    def judged(self, contents: Contents) -> Finding:
        """The verdict on a run; a file that cannot be read is a failure, not an error."""
        try:
            found = Outcome(*self.judge(contents))
        except FolderError as error:
            found = Outcome("fail", error.message)
        except ArithmeticError:
            found = Outcome("fail", "cannot be judged: its numbers are beyond any computation")
        except Exception as error:  # whatever a damaged file leads to, the verdict is that it fails
            found = Outcome("fail", f"cannot be judged: {type(error).__name__}: {error}")
        where, evidence = _placed(found, f"{contents.folder.path}/")
        return Finding(
            rule=self.id,
            title=self.title,
            section=self.section,
            verdict=found.verdict,
            evidence=evidence,
            where=where,
            reads=self.reads,
        )


def _placed(found: Outcome, root: str) -> tuple[str | None, str]:
    """Place and words; files are named from the run folder, which may be moved."""
    evidence, where = found.evidence, found.where
    named = re.search(re.escape(root) + r"([^\s:]+(?::\d+)?)", evidence) if where is None else None
    if named:
        where = named[1]
    where, evidence = where and where.removeprefix(root), evidence.replace(root, "")
    words = evidence.removeprefix(where).removeprefix(":").strip() if where else evidence
    return where, words or evidence  # the place is told before them
