from __future__ import annotations

from collections import namedtuple

import psutil
import pytest

from vflops.machine.host import HostLoad

Times = namedtuple("Times", "user system idle iowait steal guest")


@pytest.mark.parametrize(
    ("spent", "process_s", "share"),
    [
        (Times(6.0, 2.0, 12.0, 0.0, 0.0, 0.0), 8.0, 0.0),  # all of it ours
        (Times(8.0, 2.0, 10.0, 0.0, 0.0, 0.0), 6.0, 0.2),  # another process
        (Times(6.0, 0.0, 8.0, 2.0, 4.0, 0.0), 6.0, 0.2),  # a neighbour; waiting is no work
        (Times(8.0, 2.0, 10.0, 0.0, 0.0, 8.0), 6.0, 0.2),  # guests stand twice in the table
    ],
)
def test_the_share_of_others(
    spent: Times, process_s: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = iter([Times(*[0.0] * 6), spent])
    process_times = iter([0.0, process_s])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(clocks))
    monkeypatch.setattr(HostLoad, "_process_time", staticmethod(lambda: next(process_times)))
    assert HostLoad().others_share() == pytest.approx(share)
