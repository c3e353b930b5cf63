from __future__ import annotations

from collections import namedtuple

import psutil
import pytest

from vflops.machine.host import HostLoad

Times = namedtuple("Times", "user system idle iowait steal guest")


@pytest.mark.parametrize(
    ("spent", "process_s", "share", "stolen"),
    [
        (Times(6.0, 2.0, 12.0, 0.0, 0.0, 0.0), 8.0, 0.0, 0.0),  # all of it ours
        (Times(8.0, 2.0, 10.0, 0.0, 0.0, 0.0), 6.0, 0.2, 0.0),  # another process
        (Times(6.0, 0.0, 8.0, 2.0, 4.0, 0.0), 6.0, 0.0, 0.2),  # a neighbour; waiting is no work
        (Times(8.0, 2.0, 7.0, 0.0, 3.0, 0.0), 8.0, 0.1, 0.15),  # a process and a neighbour
        (Times(8.0, 2.0, 10.0, 0.0, 0.0, 8.0), 6.0, 0.2, 0.0),  # guests stand twice in the table
    ],
)
def test_the_share_of_others(
    spent: Times,
    process_s: float,
    share: float,
    stolen: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks = iter([Times(*[0.0] * 6), spent, spent])
    process_times = iter([0.0, process_s])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(clocks))
    monkeypatch.setattr(HostLoad, "_process_time", staticmethod(lambda: next(process_times)))
    load = HostLoad()
    assert load.others_share() == pytest.approx(share)
    assert load.stolen_share() == pytest.approx(stolen)
