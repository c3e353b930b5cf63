"""``vflops ranking DIR… --site OUT``: submissions as a static site of lists."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vflops.publish.ranking.lists import Ranking

_SHOWN = 3
"""Of what is left out, or does not rank."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(ranking)


def ranking(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders that hold run folders or archives of runs.")
    ],
    site: Annotated[
        Path, typer.Option(help="Folder of the pages; what is there is brought up to date.")
    ],
    add: Annotated[
        list[Path] | None,
        typer.Option(help="An archive to copy into the first folder before; repeatable."),
    ] = None,
    signers: Annotated[
        Path | None, typer.Option(help="Allowed-signers file, as for vflops verify.")
    ] = None,
) -> None:
    """Rank submissions on pages that need no server. Only what changed is read again."""
    from vflops.cli.terminal import console
    from vflops.errors import UsageError
    from vflops.publish.ranking import static_site
    from vflops.publish.ranking.submission_folders import ARCHIVE
    from vflops.results.score.figure_text import count

    if signers is not None and not signers.is_file():
        raise UsageError(f"--signers {signers}: no such file", hint="see docs/how-to/ranking.md")
    for archive in add or []:
        if not static_site.add(archive, folders[0]):
            typer.echo(f"{archive.name} is among the submissions already")
    built = static_site.build(folders, site, signers=signers, progress=_progress)
    typer.echo(f"{count(built.submissions, 'submission')}, {built.read} new or changed")
    _tell(built.ranking)
    if built.skipped:
        few = ", ".join(console.shown(each) for each in built.skipped[:_SHOWN])
        more = f" and {len(built.skipped) - _SHOWN} more" if len(built.skipped) > _SHOWN else ""
        typer.echo(f"left out, neither run folder nor archive ({ARCHIVE}): {few}{more}")
    typer.echo(f"{count(built.written, 'page')} written, {console.shown(built.index)}")
    console.next_step(f"open {built.index.resolve().as_uri()}", "offline; or copy the folder")


def _tell(ranking: Ranking) -> None:
    """How many rank, and of a few that do not the reason."""
    from vflops.results.score.figure_text import count

    ranked, apart = count(len(ranking.ranked), "result"), ranking.apart
    told = f", {len(apart)} not: the page says why" if apart else ""
    typer.echo(f"{ranked} ranked{told}")
    for each in apart if len(apart) <= _SHOWN else ():
        typer.echo(f"  {each.entry.place}: {'; '.join(each.reasons)}")


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        print(f"read {done} of {of} …", end="\n" if done == of else "\r", file=sys.stderr)
