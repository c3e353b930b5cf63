"""``--wait-quiet``: shows which programs keep the machine busy until a run can start."""

from __future__ import annotations

import sys
from collections.abc import Callable

from vflops.cli.terminal.console import say, status_line
from vflops.cli.typed_values import parse_duration
from vflops.errors import UsageError
from vflops.units import seconds

_LINE_EVERY_S = 30.0


def quiet_wait(
    wait: bool, limit: str | None, *, quiet: bool, on: str = "local"
) -> Callable[[], None]:
    """Return a function that waits for a quiet machine if ``wait``; raise if options conflict."""
    if not wait:
        if limit is not None:
            raise UsageError(
                f"--wait-limit {limit} needs --wait-quiet",
                hint=f"--wait-quiet --wait-limit {limit}",
            )
        return lambda: None
    from vflops.launch.factory import launcher_class

    if not launcher_class(on).is_this_machine:
        raise UsageError(
            f"--wait-quiet waits for this machine, but the jobs run on {on}",
            hint="leave it out: the scheduler reserves the nodes",
        )
    limit_s = None if limit is None else _parse_limit(limit)

    def wait_until_quiet() -> None:
        from vflops.run import wait_quiet

        show = _Line(quiet=quiet)
        try:
            wait_quiet.wait_until_quiet(show, limit_s)
        finally:
            show.close()

    return wait_until_quiet


def _parse_limit(limit: str) -> float:
    from vflops.run.wait_quiet import QUIET_S

    limit_s = parse_duration(limit)
    if limit_s < QUIET_S:
        raise UsageError(
            f"--wait-limit {limit} is too short: the machine must be quiet for {seconds(QUIET_S)}",
            hint=f"--wait-limit {QUIET_S:g}s or more",
        )
    return limit_s


class _Line:
    """Shows the load on one line of a terminal; elsewhere prints a line every half minute."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._printed_s: float | None = None

    def __call__(self, load: str, waited_s: float) -> None:
        if self._quiet:
            return
        line = f"waiting for a quiet machine ({seconds(waited_s)}): {load}"
        if sys.stderr.isatty():
            status_line(line)
        elif self._printed_s is None or waited_s - self._printed_s >= _LINE_EVERY_S:
            self._printed_s = waited_s
            say(line)

    def close(self) -> None:
        if not self._quiet and sys.stderr.isatty():
            status_line("")
