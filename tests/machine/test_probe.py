"""Reading a fact never raises, and the reason says what is missing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.system_fakes import script
from vflops.machine.probe import AbsentError, command, count_listed, fact, text


def test_a_value_is_kept_with_its_unit_and_source() -> None:
    result = fact("memory", "/proc/meminfo", lambda: 7, unit="B")
    assert (result.value, result.unit, result.source, result.reason) == (
        7,
        "B",
        "/proc/meminfo",
        None,
    )


def test_a_missing_file_is_named_by_its_source(tmp_path: Path) -> None:
    result = fact("kernel", "/proc/kernel", lambda: text(tmp_path / "nothing"))
    assert (result.value, result.reason) == (None, "/proc/kernel does not exist")


def test_an_unreadable_file_says_why(tmp_path: Path) -> None:
    result = fact("kernel", "/proc/kernel", lambda: text(tmp_path))
    assert result.reason == "/proc/kernel cannot be read: is a directory"


def test_an_unexpected_error_becomes_the_reason() -> None:
    assert fact("x", "y", lambda: int("ten")).reason == (
        "ValueError: invalid literal for int() with base 10: 'ten'"
    )


def test_an_empty_answer_is_not_a_value() -> None:
    assert fact("x", "/proc/x", lambda: " \n ").reason == "/proc/x is empty"


def test_a_value_of_a_wrong_type_is_absent() -> None:
    assert fact("x", "y", lambda: [1]).value is None  # type: ignore[arg-type, return-value]


def test_the_home_folder_does_not_get_into_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")

    def read() -> str:
        raise ImportError("/home/alice/lib/libtorch.so: cannot open")

    assert fact("torch", "torch", read).reason == "ImportError: ~/lib/libtorch.so: cannot open"


ANY = st.text(st.characters(exclude_categories=()))  # lone surrogates too, as in file names


@settings(max_examples=50, deadline=None)
@given(ANY, ANY)
@example("\udcff", "\udcff")
def test_any_text_makes_a_fact_that_can_be_written(words: str, reason: str) -> None:
    def fail() -> str:
        raise AbsentError(reason)

    for result in (fact("x", "y", lambda: words), fact("x", "y", fail)):
        assert (result.value is None) != (result.reason is None)
        result.model_dump_json().encode()


def test_a_command_gives_what_it_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    script(tmp_path, "tool", 'echo "version 1 in $LC_ALL"')
    assert command("tool", "--version") == "version 1 in C"


def test_a_hung_command_is_absent_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    script(tmp_path, "tool", "exec sleep 20")
    start = time.monotonic()
    with pytest.raises(AbsentError, match=r"`tool` did not answer within 0\.2 s"):
        command("tool", timeout_s=0.2)
    assert time.monotonic() - start < 5


def test_a_failing_command_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    script(tmp_path, "tool", "echo 1.0; exit 3")
    with pytest.raises(AbsentError, match="exit status 3"):
        command("tool")


def test_a_missing_command_is_absent() -> None:
    with pytest.raises(AbsentError, match="no-such-tool is not on PATH"):
        command("no-such-tool")


@pytest.mark.parametrize(("numbers", "count"), [("0", 1), ("0-3", 4), ("0-3,8,10-11", 7)])
def test_a_kernel_list_is_counted(numbers: str, count: int) -> None:
    assert count_listed(numbers) == count
