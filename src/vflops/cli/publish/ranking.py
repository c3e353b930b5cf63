"""``vflops ranking DIR… --site OUT``: writes a static site that ranks submissions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vflops.publish.ranking.lists import Ranking

_SHOWN = 3
"""How many submissions that are left out or not ranked are shown."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(ranking)


def ranking(
    folders: Annotated[list[Path], typer.Argument(help="Folders with run folders or archives.")],
    site: Annotated[Path, typer.Option(help="Folder of the pages; an existing site is updated.")],
    add: Annotated[
        list[Path] | None,
        typer.Option(help="An archive to copy into the first folder first; repeatable."),
    ] = None,
    signers: Annotated[
        Path | None, typer.Option(help="SSH allowed-signers file, as for `vflops verify`.")
    ] = None,
) -> None:
    """Rank submissions on a static site. Reads only submissions that changed."""
    from vflops.cli.terminal import console
    from vflops.errors import UsageError
    from vflops.publish.ranking import static_site
    from vflops.publish.ranking.submission_folders import ARCHIVE
    from vflops.results.score.figure_text import count

    if signers is not None and not signers.is_file():
        raise UsageError(f"--signers {signers} does not exist", hint="see docs/how-to/ranking.md")
    for archive in add or []:
        if not static_site.add(archive, folders[0]):
            typer.echo(f"{archive.name} is already among the submissions")
    built = static_site.build(folders, site, signers=signers, progress=_progress)
    typer.echo(f"{count(built.submissions, 'submission')}, {built.read} new or changed")
    _show_ranked(built.ranking)
    if built.skipped:
        first_paths = ", ".join(console.shell_path(path) for path in built.skipped[:_SHOWN])
        more = f" and {len(built.skipped) - _SHOWN} more" if len(built.skipped) > _SHOWN else ""
        typer.echo(
            f"left out, neither a run folder nor an archive ({ARCHIVE}): {first_paths}{more}"
        )
    typer.echo(f"{count(built.written, 'page')} written, {console.shell_path(built.index)}")
    console.open_page(built.index, "the pages (copy the folder to publish them)")


def _show_ranked(ranking: Ranking) -> None:
    """Print how many results are ranked, and why a few are not."""
    from vflops.results.score.figure_text import count

    ranked, unranked = count(len(ranking.ranked), "result"), ranking.unranked
    note = f", {len(unranked)} not; the page says why" if unranked else ""
    typer.echo(f"{ranked} ranked{note}")
    for result in unranked if len(unranked) <= _SHOWN else ():
        typer.echo(f"  {result.entry.place}: {'; '.join(result.reasons)}")


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"read {done} of {total} …", end="\n" if done == total else "\r", file=sys.stderr)
