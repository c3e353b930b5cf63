from __future__ import annotations

import sys

import pytest

from vflops.cli.terminal.quiet_wait import quiet_wait
from vflops.errors import RunFailed, UsageError
from vflops.run import wait_quiet
from vflops.run.wait_quiet import Load, wait_until_quiet, watch_load


class Machine:
    """A machine with the given load in each window, and a clock that the windows advance."""

    def __init__(self, *loads: float) -> None:
        self.loads = list(loads)
        self.now_s = 0.0

    def watch(self, seconds_s: float) -> Load:
        self.now_s += seconds_s
        share = self.loads.pop(0)
        return Load(share, f"others {share}", f"others {share}")

    def clock(self) -> float:
        return self.now_s


def test_a_pause_of_the_others_is_not_quiet_yet() -> None:
    machine, said = Machine(0.6, 0.05, 0.3, 0.1, 0.02, 0.1, 0.9), list[str]()
    wait_until_quiet(
        lambda text, waited_s: said.append(text), watch=machine.watch, clock=machine.clock
    )
    assert machine.loads == [0.9]
    assert [text.partition(";")[0] for text in said] == [
        "others 0.6",
        "others 0.05",
        "others 0.3",
        "others 0.1",
        "others 0.02",
    ]


def test_a_limit_ends_the_wait_and_says_who_is_busy() -> None:
    machine = Machine(*[0.6] * 9)
    with pytest.raises(RunFailed, match=r"not quiet within 10 s: others 0\.6, at most 10 %") as why:
        wait_until_quiet(lambda *_: None, 10.0, watch=machine.watch, clock=machine.clock)
    assert machine.now_s == 12.0
    assert "--wait-limit" in str(why.value.hint)


@pytest.mark.parametrize(
    ("loads", "words"),
    [
        ((0.6, 0.005, 0.005), r"quiet for only 6 of 9 s; before that, others 0\.6, at most 10 %"),
        ((0.005, 0.7, 0.005), r"quiet for only 3 of 9 s; before that, others 0\.7, at most 10 %"),
    ],
)
def test_a_wait_that_ends_in_a_pause_names_the_last_busy_window(
    loads: tuple[float, ...], words: str
) -> None:
    machine = Machine(*loads)
    with pytest.raises(RunFailed, match=words):
        wait_until_quiet(lambda *_: None, 9.0, watch=machine.watch, clock=machine.clock)


def test_the_names_of_programs_come_first_in_a_line_that_may_be_cut() -> None:
    load = Load(0.6, "other programs used 60 % of the CPUs (cc1 55 %)", "cc1 55 %")
    assert load.line == "cc1 55 %; 60 % of the CPUs used by others"
    assert Load(0.0, "other programs used 0.0 % of the CPUs").line.startswith("0 % of the CPUs")


def test_the_load_of_this_machine_is_a_share_with_names() -> None:
    load = watch_load(0.05)
    assert 0 <= load.share <= 1
    assert load.text.startswith("other programs used ")


def test_elsewhere_than_on_a_terminal_a_line_is_printed_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(*[0.6] * 15, *[0.0] * 3)
    monkeypatch.setattr(
        wait_quiet,
        "wait_until_quiet",
        lambda show, limit_s: wait_until_quiet(
            show, limit_s, watch=machine.watch, clock=machine.clock
        ),
    )
    quiet_wait(True, None, quiet=False)()
    assert capsys.readouterr().err.splitlines() == [
        "waiting for a quiet machine (3 s): others 0.6; 60 % of the CPUs used by others",
        "waiting for a quiet machine (33 s): others 0.6; 60 % of the CPUs used by others",
    ]


def test_a_terminal_shows_one_line_that_is_removed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(0.6, *[0.0] * 3)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(
        wait_quiet,
        "wait_until_quiet",
        lambda show, limit_s: wait_until_quiet(
            show, limit_s, watch=machine.watch, clock=machine.clock
        ),
    )
    quiet_wait(True, None, quiet=False)()
    shown = capsys.readouterr().err
    assert "\n" not in shown
    assert shown.startswith("\rwaiting for a quiet machine (3 s): oth…\x1b[K")
    assert shown.endswith("\r\x1b[K\r")


@pytest.mark.parametrize(
    ("wait", "limit", "on", "words"),
    [
        (False, "5m", "local", "--wait-limit 5m needs --wait-quiet"),
        (True, None, "slurm", "the jobs run on slurm"),
        (True, "soon", "local", "'soon' is not a duration"),
        (True, "5s", "local", "5s is too short: the machine must be quiet for 9 s"),
    ],
)
def test_options_that_cannot_be_met_are_refused(
    wait: bool, limit: str | None, on: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        quiet_wait(wait, limit, quiet=False, on=on)
