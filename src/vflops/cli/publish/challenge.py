"""``vflops challenge``: issues a challenge, from which all seeds of a submitter's run follow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(challenge)


def challenge(
    for_: Annotated[
        str,
        typer.Option("--for", help="The submitter, named as in your list of allowed signers."),
    ],
    key: Annotated[
        Path | None,
        typer.Option(help="Your SSH key; by default the first of the standard keys in ~/.ssh."),
    ] = None,
    valid: Annotated[
        str, typer.Option(help="How long the submitter has until the result is handed in.")
    ] = "30d",
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("challenge.json"),
) -> None:
    """Issue a challenge to a submitter. All seeds of the answering run follow from it."""
    from vflops.cli.terminal import console
    from vflops.cli.typed_values import parse_duration
    from vflops.errors import UsageError
    from vflops.publish.evidence.challenges import NAMESPACE, issue
    from vflops.publish.evidence.sign_run import allowed_line

    valid_s = parse_duration(valid)
    if out.exists():
        raise UsageError(
            f"{out} already exists, and a challenge is issued only once",
            hint="name another file with --out",
        )
    issued, used_key = issue(for_, valid_s=valid_s, key=key)
    issued.write(out)
    name = console.shell_path(out)
    typer.echo(
        f"{name}: for {issued.submitter}, issued {issued.issued_utc}, valid until "
        f"{issued.expires_utc}; signed with {used_key}"
    )
    line = allowed_line(used_key, NAMESPACE)
    if line is not None:
        console.say("the line of your key for --challenge-signers FILE:", file=sys.stdout)
        typer.echo(line)
    console.next_step(f"vflops run --challenge {name}", "by the submitter, to whom you send it")
