"""Output that all commands share, such as errors with a hint and the next step."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from vflops.cli.terminal.columns import output_width
from vflops.errors import Hint, UsageError, VflopsError
from vflops.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from vflops.record.folder import RunFolder
    from vflops.record.readout.contents import Contents


def console() -> Console:
    """Return a console for stdout, for a file or a pipe with ``output_width()`` columns."""
    from rich.console import Console

    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=output_width())


def cell(text: str) -> str:
    """Return ``text`` for rich, without markup and control characters."""
    from rich.markup import escape

    return escape(printable(text))


def show_error(error: VflopsError) -> None:
    """Print an error and its hint."""
    say(f"error: {error.message}", indent=7)
    if error.hint:
        text, command = _text_and_command(error.hint)
        line = error.hint.replace("vflops ", f"{command_name()} ")
        width = shutil.get_terminal_size().columns
        if command and sys.stderr.isatty() and len(line) + 7 > width:
            say(f"       {text}:", indent=7)
            print(
                f"       {command_name()} {command}", file=sys.stderr
            )  # unwrapped, so that it can be copied
        else:
            say(f"       {line}", indent=7)


def _text_and_command(hint: str) -> tuple[str, str]:
    """Return what a hint says and the words after ``vflops`` in its command, if it ends in one."""
    if isinstance(hint, Hint):
        return hint.text, hint.command.removeprefix("vflops ")
    text, _, command = hint.partition(": vflops ")  # of code that does not give a ``Hint`` yet
    return text, command


def next_step(command: str, why: str) -> None:
    """Print the suggested next command on stderr to keep piped output clean.

    On a narrow terminal it has a hanging indent, and can still be copied.
    """
    print(file=sys.stderr)
    _print_step("next:", command, why)


def other_step(command: str, why: str) -> None:
    """Print another command that the user may prefer to the ``next_step`` printed before."""
    _print_step("or:", command, why)


def _print_step(label: str, command: str, why: str) -> None:
    if command.startswith("vflops "):
        command = command_name() + command.removeprefix("vflops")
    line = f"{label:6}{command}   ({why})"
    width = shutil.get_terminal_size().columns
    if sys.stderr.isatty() and len(line) > width:
        reason = textwrap.wrap(f"({why})", width - 6, break_on_hyphens=False)
        lines = [*_command_lines(command, width - 6), *reason]
        line = f"{label:6}" + "\n      ".join(lines)
    print(printable(line, keep="\n"), file=sys.stderr)


def _command_lines(command: str, width: int) -> list[str]:
    """Return a command in lines that a shell reads as one, broken between its arguments."""
    lines: list[str] = []
    for word in re.findall(r"(?:'[^']*'|[^ '])+", command):
        if lines and len(lines[-1]) + len(word) + 3 <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def open_page(page: Path, what: str) -> None:
    """Print the address of a page, unwrapped on a line of its own so that it can be clicked."""
    say(f"\nnext: open {what} in a browser:")
    print(printable(page.resolve().as_uri()), file=sys.stderr)


def open_report(folder: RunFolder) -> None:
    """Print how to open the report of a run, or how to write it."""
    if folder.report_file.is_file():
        open_page(folder.report_file, "the report")
    else:
        next_step(f"vflops report {shell_path(folder.path)}", "write the report")


def say(text: str, *, indent: int = 0, file: TextIO | None = None) -> None:
    """Print to stderr or ``file``, wrapped between words on a terminal."""
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


def status_line(text: str) -> None:
    """Replace the current line of the terminal by ``text``, shortened to its width."""
    width = shutil.get_terminal_size().columns - 1
    shown = printable(text)
    shown = shown if len(shown) <= width else f"{shown[: width - 1]}…"
    print(f"\r{shown}\x1b[K", end="" if shown else "\r", file=sys.stderr, flush=True)


@contextmanager
def working(text: str, *, in_logs: bool = False) -> Iterator[None]:
    """Show ``text`` on a terminal while the block runs, and remove it afterwards.

    With ``in_logs``, it is also a line of a log, for what takes long enough to be missed there.
    """
    on_terminal = sys.stderr.isatty()
    if on_terminal or in_logs:
        end = "\r" if on_terminal else "\n"
        print(f"{text} …", end=end, file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if on_terminal:
            print(" " * (len(text) + 2), end="\r", file=sys.stderr, flush=True)


def command_name() -> str:
    """Return the name of this command, or its path if it is not on PATH."""
    started = Path(sys.argv[0])
    if shutil.which("vflops") or started.name != "vflops":
        return "vflops"
    return shell_path(started)


def shell_path(path: Path) -> str:
    """Return ``path`` relative to the current folder if possible, quoted for a shell.

    Control characters are escaped in the notation of bash.
    """
    try:
        text = str(path.relative_to(Path.cwd()))
    except ValueError:
        text = str(path)
    if printable(text) == text:
        return shlex.quote(text)
    return f"$'{''.join(map(_shell_escape, text))}'"


def _shell_escape(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if printable(character) == character:
        return character
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))


def open_run(run: Path | None) -> RunFolder:
    """Return the given run, or the newest under ``runs/`` that the user started here."""
    from vflops.record.folder import RunFolder, newest_own

    path = run or newest_own(Path("runs"))
    if path is None:
        raise _no_run("no run", "start one: vflops run")
    return RunFolder.open(path)


def _no_run(what: str, hint: str) -> UsageError:
    """Return the error for a command without RUN; it mentions runs that are not the user's own."""
    from vflops.record.folder import newest_first
    from vflops.record.own_runs import is_own, unrecorded_reason

    others = sum(not is_own(path) for path in newest_first(Path("runs")))
    if not others:
        return UsageError(f"no run is given, and runs/ holds {what}", hint=hint)
    runs = f"{others} run{'s' * (others > 1)} that vflops did not start here for you"
    reason = unrecorded_reason()
    return UsageError(
        f"no run is given, and runs/ holds {what} of yours, only {runs}",
        hint="give the path of the run that you mean" + (f"; {reason}" if reason else ""),
    )


def open_interrupted_run(run: Path | None) -> RunFolder:
    """Return the given run, or the user's newest one under ``runs/`` with something left to do.

    A run in progress is returned only if no other is left, so that the error names its process.
    """
    from vflops.record.files.lock import is_locked
    from vflops.record.folder import RunFolder, newest_first
    from vflops.record.own_runs import is_own

    if run is not None:
        return RunFolder.open(run)
    in_progress = None
    for path in filter(is_own, newest_first(Path("runs"))):
        try:
            folder = RunFolder.open(path)
            is_done = folder.history(0).state.complete and all(
                file.is_file() for file in folder.result_files
            )
        except VflopsError:  # a damaged run cannot be resumed
            continue
        if not is_done and not is_locked(folder.lock):
            return folder
        in_progress = in_progress or (None if is_done else folder)
    if in_progress is not None:
        return in_progress
    raise _no_run("no interrupted run", "name one: vflops resume RUN")


def read_run(run: Path | None) -> Contents:
    """Return the contents of the given or newest run; print a note if it is not finished."""
    from vflops.record.own_runs import finish_hint
    from vflops.record.readout.contents import Contents

    contents = Contents(open_run(run))
    state, name = contents.state, shell_path(contents.folder.path)
    if contents.in_progress:
        say(f"run {name} is in progress: these are its results so far")
    elif not state.complete:
        say(f"incomplete run {name}: {state.reason}")
        hint = finish_hint(contents.folder.path, name)
        say(f"       {hint.replace('vflops ', f'{command_name()} ')}")
    return contents
