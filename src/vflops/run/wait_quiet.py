"""Waits until other programs use little of this machine, and says which keep it busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from vflops.errors import RunFailed
from vflops.machine.host import HostLoad
from vflops.results.check.background_load import MAX_LOAD, used_by_others
from vflops.units import percent, seconds

_WINDOW_S = 3.0
_QUIET_WINDOWS = 3
"""How many windows in a row must be quiet, since many programs work in bursts."""


@dataclass(frozen=True)
class Load:
    """The load by other programs in one window."""

    share: float
    text: str
    """The share, with the names of the busiest programs."""


def watch_load(seconds_s: float) -> Load:
    """Return the load by other programs on this machine during the next ``seconds_s``."""
    host = HostLoad()
    time.sleep(seconds_s)
    share = host.others_share()
    return Load(share, used_by_others(share, host.programs()))


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
    start_s, quiet = clock(), 0
    while True:
        load = watch(_WINDOW_S)
        quiet = quiet + 1 if load.share <= MAX_LOAD else 0
        if quiet == _QUIET_WINDOWS:
            return
        waited_s = clock() - start_s
        on_wait(load.text, waited_s)
        if limit_s is not None and waited_s >= limit_s:
            raise RunFailed(
                f"the machine was not quiet within {seconds(limit_s)}: {load.text}, at most "
                f"{percent(MAX_LOAD, digits=0)} is allowed",
                hint="end these programs, raise --wait-limit, or run without --wait-quiet",
            )
