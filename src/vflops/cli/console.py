"""What every command shows alike: errors with their cure, and the next sensible step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vflops.errors import UsageError, VflopsError

if TYPE_CHECKING:
    from rich.console import Console

    from vflops.record.folder import RunFolder
    from vflops.score.contents import Contents


def console() -> Console:
    """The terminal, or 100 plain columns when the output is a file or a pipe."""
    from rich.console import Console

    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=100)


def show_error(error: VflopsError) -> None:
    """One line for what is wrong, one for what to do."""
    print(f"error: {error.message}", file=sys.stderr)
    if error.cure:
        print(f"       {error.cure}", file=sys.stderr)


def next_step(command: str, why: str) -> None:
    """Name the next sensible command, on stderr so that piped output stays clean."""
    print(f"\nnext: {command}   ({why})", file=sys.stderr)


def shown(path: Path) -> str:
    """``path`` as short as it can be typed from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def open_run(run: Path | None) -> RunFolder:
    """The run that was named, or the newest under ``runs/``."""
    from vflops.record.folder import RunFolder, latest

    path = run or latest(Path("runs"))
    if path is None:
        raise UsageError(
            "no run was named, and there is none under runs/", cure="start one: vflops run"
        )
    return RunFolder.open(path)


def read_run(run: Path | None) -> Contents:
    """What the named or newest run holds; one that did not end is named as incomplete."""
    from vflops.score.contents import Contents

    contents = Contents(open_run(run))
    state = contents.history.state
    if not state.complete:
        name = shown(contents.folder.path)
        print(f"incomplete run {name}: {state.reason}", file=sys.stderr)
        print(f"       go on with it: vflops resume {name}", file=sys.stderr)
    return contents
