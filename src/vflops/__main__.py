"""Runs the command line: the command ``vflops``, and ``python -m vflops``."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

from vflops import interruption
from vflops.errors import Interrupted
from vflops.machine.system.openmp_waiting import set_waiting_policy


def main() -> None:
    """Run the command line; Ctrl-C gives one line even while modules are imported."""
    interruption.install(interruption.leave)
    set_waiting_policy()
    from vflops.cli import main as run

    try:
        run()
    except SystemExit as end:
        if end.code == Interrupted.exit_code:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError):
                    stream.flush()
            interruption.end_process()
        raise
    finally:
        interruption.install(signal.SIG_DFL)


if __name__ == "__main__":
    main()
