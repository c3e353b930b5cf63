"""Waits until other programs use little of this machine, and says which keep it busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from vflops.errors import RunFailed
from vflops.machine.host import HostLoad
from vflops.results.check.background_load import MAX_LOAD, busiest_programs, used_by_others
from vflops.units import percent, seconds

_WINDOW_S = 3.0
_QUIET_WINDOWS = 3
"""How many windows in a row must be quiet, since many programs work in bursts."""
QUIET_S = _WINDOW_S * _QUIET_WINDOWS
"""How long the machine must be quiet, which is also the shortest wait."""


@dataclass(frozen=True)
class Load:
    """The load by other programs in one window."""

    share: float
    text: str
    """The share, with the names of the busiest programs, as a clause."""
    names: str = ""
    """The names of the busiest programs; empty if there are none."""

    @property
    def is_quiet(self) -> bool:
        """Whether a run may start with this load."""
        return self.share <= MAX_LOAD

    @property
    def line(self) -> str:
        """The load for a line that may be cut at its end: names first."""
        used = f"{percent(self.share, digits=0)} of the CPUs used by others"
        return f"{self.names}; {used}" if self.names else used


def watch_load(seconds_s: float) -> Load:
    """Return the load by other programs on this machine during the next ``seconds_s``."""
    host = HostLoad()
    time.sleep(seconds_s)
    share, programs = host.others_share(), host.programs()
    return Load(share, used_by_others(share, programs), busiest_programs(share, programs))


def wait_until_quiet(
    on_wait: Callable[[str, float], None],
    limit_s: float | None = None,
    *,
    watch: Callable[[float], Load] = watch_load,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Return when the machine has been quiet for a while; raise RunFailed after ``limit_s``.

    ``on_wait`` is called with the load and the seconds waited after each window.
    """
    start_s, quiet, busy = clock(), 0, None
    while True:
        load = watch(_WINDOW_S)
        quiet, busy = (quiet + 1, busy) if load.is_quiet else (0, load)
        if quiet == _QUIET_WINDOWS:
            return
        waited_s = clock() - start_s
        on_wait(load.line, waited_s)
        if limit_s is not None and waited_s >= limit_s:
            raise RunFailed(
                f"the machine was not quiet within {seconds(limit_s)}: {_reason(quiet, busy)}",
                hint="end these programs, raise --wait-limit, or run without --wait-quiet",
            )


def _reason(quiet: int, busy: Load | None) -> str:
    """Return why a wait was too short, from the quiet windows at its end and the last busy one."""
    used = f"{busy.text}, at most {percent(MAX_LOAD, digits=0)} is allowed" if busy else ""
    if not quiet:
        return used
    short = f"it was quiet for only {quiet * _WINDOW_S:g} of {seconds(QUIET_S)}"
    return f"{short}; before that, {used}" if used else short
