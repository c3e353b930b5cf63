"""What every command shows alike: errors with their hint, and the next sensible step."""

from __future__ import annotations

import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from vflops.errors import UsageError, VflopsError
from vflops.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from vflops.record.folder import RunFolder
    from vflops.record.readout.contents import Contents


def console() -> Console:
    """Return the terminal, or 100 plain columns when the output is a file or a pipe."""
    from rich.console import Console

    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=100)


def cell(text: str) -> str:
    """Return ``text`` as it stands, for rich: no markup, and nothing that a terminal obeys."""
    from rich.markup import escape

    return escape(printable(text))


def show_error(error: VflopsError) -> None:
    """One sentence for what is wrong, one for what to do."""
    say(f"error: {error.message}", indent=7)
    if error.hint:
        words, _, command = error.hint.partition(": vflops ")
        line = error.hint.replace("vflops ", f"{own_name()} ")
        width = shutil.get_terminal_size().columns
        if command and sys.stderr.isatty() and len(line) + 7 > width:
            say(f"       {words}:", indent=7)
            print(f"       {own_name()} {command}", file=sys.stderr)  # whole, so it can be copied
        else:
            say(f"       {line}", indent=7)


def next_step(command: str, why: str) -> None:
    """Name the next sensible command, unbroken, on stderr so that piped output stays clean."""
    if command.startswith("vflops "):
        command = own_name() + command.removeprefix("vflops")
    line = f"next: {command}   ({why})"
    if sys.stderr.isatty() and len(line) > shutil.get_terminal_size().columns:
        line = f"next: {command}\n      ({why})"
    print(printable(f"\n{line}", keep="\n"), file=sys.stderr)


def open_report(folder: RunFolder) -> None:
    """Name the page of a run as what to look at next, or how it is made."""
    if folder.report_file.is_file():
        next_step(f"open {folder.report_file.resolve().as_uri()}", "the report, offline")
    else:
        next_step(f"vflops report {shown(folder.path)}", "the page to look at")


def say(text: str, *, indent: int = 0, file: TextIO | None = None) -> None:
    """Print to stderr (or ``file``), wrapped at words in a terminal, as one line elsewhere."""
    out = file or sys.stderr
    text = printable(text, keep="\n\t")
    if out.isatty():
        width = shutil.get_terminal_size().columns
        lead = text[: len(text) - len(text.lstrip("\n"))]
        text = lead + textwrap.fill(
            text.lstrip("\n"),
            width,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
            replace_whitespace=False,
        )
    print(text, file=out)


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show ``text`` in a terminal while the block runs: a sign of life that leaves no trace."""
    alive = sys.stderr.isatty()
    if alive:
        print(f"{text} …", end="\r", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if alive:
            print(" " * (len(text) + 2), end="\r", file=sys.stderr, flush=True)


def own_name() -> str:
    """Return how this command is typed here: by its name, or by its path while that is not on PATH."""
    started = Path(sys.argv[0])
    if shutil.which("vflops") or started.name != "vflops":
        return "vflops"
    return shown(started)


def shown(path: Path) -> str:
    """Return ``path`` as short as it can be typed from here, quoted where a shell needs that."""
    try:
        return shlex.quote(str(path.relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(str(path))


def open_run(run: Path | None) -> RunFolder:
    """Return the run that was named, or the newest under ``runs/``."""
    from vflops.record.folder import RunFolder, latest

    path = run or latest(Path("runs"))
    if path is None:
        raise UsageError(
            "no run was named, and there is none under runs/", hint="start one: vflops run"
        )
    return RunFolder.open(path)


def read_run(run: Path | None) -> Contents:
    """Return what the named or newest run holds; one that has not ended is said to be so."""
    from vflops.record.readout.contents import Contents

    contents = Contents(open_run(run))
    state, name = contents.state, shown(contents.folder.path)
    if contents.in_progress:
        say(f"run {name} is in progress: this is how far it has come")
    elif not state.complete:
        say(f"incomplete run {name}: {state.reason}")
        say(f"       go on with it: {own_name()} resume {name}")
    return contents
