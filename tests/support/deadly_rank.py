"""A rank without an agent, which may be killed: ``python deadly_rank.py RUN JOB ATTEMPT``.

``DIE`` names the moment at which it is killed: after its next event of a kind, or its claim.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from vflops.interruption import run_and_end
from vflops.record.log.events import EventWriter
from vflops.train import rank
from vflops.workloads.automl.candidate_buffer import CandidateBuffer


def _die_after(cls: Any, name: str, here: Any) -> None:
    """Kill this process after a method call for which ``here`` returns True."""
    method = getattr(cls, name)

    def deadly(self: Any, *arguments: Any, **named: Any) -> Any:
        found = method(self, *arguments, **named)
        if here(*arguments):
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(cls, name, deadly)


if __name__ == "__main__":
    moment = os.environ.get("DIE")
    if moment == "claim":
        _die_after(CandidateBuffer, "claim", lambda *_: True)
    elif moment:
        _die_after(EventWriter, "write", lambda kind: kind == moment)
    os.environ["VFLOPS_LAUNCHER"] = str(os.getppid())  # which waits for this process only
    run_and_end(rank.main, *sys.argv[1:4])
