"""``vflops ranking DIR… --site OUT``: submissions as a static site of lists."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


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
    from vflops.cli import console
    from vflops.errors import UsageError
    from vflops.ranking import site as sites

    if signers is not None and not signers.is_file():
        raise UsageError(f"--signers {signers}: no such file", cure="see docs/ranking.md")
    for archive in add or []:
        sites.add(archive, folders[0])
    built = sites.build(folders, site, signers=signers, progress=_progress)
    ranked, apart = len(built.ranking.ranked), len(built.ranking.apart)
    typer.echo(f"{built.submissions} submissions, {built.read} of them new or changed")
    typer.echo(f"{ranked} results ranked, {apart} not: the page says why")
    typer.echo(f"{built.written} pages written, {console.shown(built.index)}")
    console.next_step(f"open {built.index.resolve().as_uri()}", "offline; or copy the folder")


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        print(f"read {done} of {of} …", end="\n" if done == of else "\r", file=sys.stderr)
