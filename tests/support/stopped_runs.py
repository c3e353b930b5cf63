"""The command in this process, up to the point where a run would begin."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from vflops.cli import main
from vflops.config.settings import Settings
from vflops.errors import VflopsError
from vflops.record.folder import RunFolder

BEGINS = 99
"""The exit code of a command whose run would begin."""
_NEXT = re.compile(r"^next: (vflops .*)   \(")
_SUGGESTED = re.compile(r"^(?:next: |or:   )(vflops .*)   \(|(?:: |, or )(vflops .*)$")


class _Begins(VflopsError):
    """Everything was checked, and the run folder would be created."""

    exit_code = BEGINS


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and the run that it would have started."""

    code: int
    settings: Settings | None
    out: str
    err: str

    @property
    def error(self) -> str:
        """The error with its hint."""
        return "error: " + self.err.partition("error: ")[2] if "error: " in self.err else ""

    @property
    def suggested(self) -> list[list[str]]:
        """The words of every command that it suggests, without the name ``vflops``."""
        lines = [*self.err.splitlines(), *self.out.splitlines()]
        found = [match for line in lines if (match := _SUGGESTED.search(line))]
        return [shlex.split(next(filter(None, match.groups())))[1:] for match in found]

    @property
    def next(self) -> list[str]:
        """The words of the command after ``next:``."""
        (found,) = filter(None, map(_NEXT.search, self.err.splitlines()))
        return shlex.split(found[1])[1:]


Command = Callable[..., Outcome]


def stopped_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return the command in ``folder``, which ends with ``BEGINS`` where a run would begin."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "400")

    def call(*words: object) -> Outcome:
        started: list[Settings] = []

        def create(
            parent: Path, workload: str, settings: Settings, *_: object, **__: object
        ) -> Any:
            started.append(settings)
            raise _Begins("the run would begin")

        out, err = io.StringIO(), io.StringIO()
        with (
            monkeypatch.context() as patch,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            patch.setattr(RunFolder, "create", create)
            patch.setattr(sys, "argv", ["vflops", *map(str, words)])
            try:
                main()
                code = 0
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        return Outcome(code, started[0] if started else None, out.getvalue(), err.getvalue())

    return call
