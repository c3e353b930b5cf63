"""How an agent's attempt at a job ended early: a line of JSON in its output.

Agents of several jobs may share an output file, and a node that does not see the run folder can
write nowhere else.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

from pydantic import ValidationError

from vflops.record.files.document import Data
from vflops.record.files.strict_json import parse_json

Outcome = Literal["limit", "stopped", "elsewhere", "unseen", "hung", "killed", "failed"]
"""The job was stopped, either before its time limit or for another reason; another agent runs it;
the node does not see the run folder; or a rank hung, was killed by a signal, or ended with an
error."""


class AgentReport(Data):
    """The last line of an agent that did not finish its job."""

    node: str
    job: int | None = None
    """None for all jobs of the script: the node was checked before the first of them."""
    outcome: Outcome
    message: str
    hint: str | None = None

    @property
    def text(self) -> str:
        """The node, the job if it is one, and the message."""
        job = "" if self.job is None else f"job {self.job}: "
        return f"{self.node}: {job}{self.message}"

    @property
    def may_be_the_node(self) -> bool:
        """Whether the node may be the reason, instead of the job."""
        return self.outcome in ("unseen", "hung", "killed")


def last_report(output: bytes, job: int) -> AgentReport | None:
    """Return the newest report about a job in the output of one or more agents.

    If one of several agents fails, the others are stopped, and report that later: that a job was
    stopped counts only if no agent reports anything else.
    """
    stopped: dict[Outcome, AgentReport] = {}
    for line in reversed(output.splitlines()):
        if line.startswith(b"{"):
            with suppress(ValueError, ValidationError):
                report = AgentReport.model_validate(parse_json(line))
                if report.job not in (job, None):
                    continue
                if report.outcome not in ("limit", "stopped"):
                    return report
                stopped.setdefault(report.outcome, report)
    return stopped.get("limit", stopped.get("stopped"))
