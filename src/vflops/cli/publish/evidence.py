"""``vflops verify``, ``sign``, ``archive``, ``extract``, ``reproduce``: what others can check."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflops.cli import options

if TYPE_CHECKING:
    from vflops.publish.evidence.verify import Verification

RunOrArchive = Annotated[
    Path | None,
    typer.Argument(help="A run folder or an archive; the newest run under runs/ when left out."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (verify, sign, archive, extract, reproduce):
        app.command()(command)


def verify(
    run: RunOrArchive = None,
    signers: Annotated[
        Path | None, typer.Option(help="Keys that you trust: an allowed-signers file of SSH.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what of a run was altered. Exit code 0 only if nothing was (and a signer vouches)."""
    from vflops.cli.terminal import console
    from vflops.errors import CheckFailed
    from vflops.publish.evidence.verify import verify as look
    from vflops.record.files.atomic import json_text

    path = run if run is not None else console.open_run(None).path
    found = look(path, signers)
    if json:
        typer.echo(json_text(found.model_dump(mode="json")), nl=False)
    else:
        for line in _told(found):
            console.say(line, indent=11, file=sys.stdout)
    name = console.shown(path)
    if found.alterations:
        what = f"{len(found.alterations)} alteration{'s' * (len(found.alterations) > 1)}"
        raise CheckFailed(
            f"{name} is not as it was concluded: {what}",
            hint="fetch it once more from its author, and compare the SHA-256 of the archive",
        )
    if found.unconcluded is not None:
        raise CheckFailed(
            f"{name} is not concluded yet: {found.unconcluded}",
            hint="wait until it ends" if found.goes_on else f"go on with it: vflops resume {name}",
        )
    if not found.accepted:
        raise CheckFailed(
            f"{name} is not signed by one of {signers}",
            hint="it is intact: ask its author to sign it, or for the line of their key",
        )
    if json:
        return
    if path.is_file():
        console.next_step(f"vflops reproduce {name}", "the same settings here: does it come out?")
    elif found.signed:
        console.next_step(f"vflops archive {name}", "one file to hand on")
    else:
        console.next_step(f"vflops sign {name}", "so that others know whose it is")


def _told(found: Verification) -> list[str]:
    whole = "intact: every file is as it was when the run was concluded"
    return [
        f"run        {found.run or 'unknown'}",
        *([f"open       not concluded yet: {found.unconcluded}"] if found.unconcluded else []),
        *(f"altered    {line}" for line in found.alterations),
        *([f"files      {whole}"] if found.intact else []),
        *(f"note       {line}" for line in found.notes),
        f"signature  {found.signature}",
    ]


def sign(
    run: options.Run = None,
    key: Annotated[
        Path | None, typer.Option(help="Your SSH key; the usual one in ~/.ssh by default.")
    ] = None,
) -> None:
    """Sign a run with your SSH key. What is signed is its manifest, in the namespace vflops."""
    from vflops.cli.terminal import console
    from vflops.publish.evidence.sign_run import UNNAMED, allowed_line, sign_run, signing_key

    folder = console.open_run(run)
    before = signing_key(folder)
    used = sign_run(folder, key)
    typer.echo(f"signed with {used}: {console.shown(folder.path / 'manifest.json.sig')}")
    if before not in (None, signing_key(folder)):
        console.say(f"it replaces the signature by another key: {before}", file=sys.stdout)
    line = allowed_line(used)
    if line is not None:
        own = f", with your address for {UNNAMED}" if line.startswith(UNNAMED) else ""
        typer.echo(f"readers put this line into their file of allowed signers{own}:\n{line}")
    console.next_step(f"vflops archive {console.shown(folder.path)}", "one file to hand on")


def archive(
    run: options.Run = None,
    out: Annotated[
        str | None, typer.Option(help="File, or folder/, to write; beside the run by default.")
    ] = None,
) -> None:
    """Write a run into one file. No checkpoints; the same bytes from the same folder."""
    from vflops.cli.terminal import console
    from vflops.publish.evidence.archive import archive as pack
    from vflops.record.files import atomic
    from vflops.record.files.digest import file_digest

    folder = console.open_run(run)
    if out is not None and out.endswith("/"):
        atomic.make_folder(Path(out))
    with console.working("packing"):
        path = pack(folder, None if out is None else Path(out))
    typer.echo(f"{console.shown(path)}\nSHA-256 {file_digest(path).sha256}")
    console.next_step(f"vflops verify {console.shown(path)}", "as whoever gets it will")


def extract(
    file: Annotated[Path, typer.Argument(help="A file that `vflops archive` made.")],
    out: options.Out = Path("runs"),
) -> None:
    """Unpack the run folder of an archive. What is no plain run folder is refused."""
    from vflops.cli.terminal import console
    from vflops.publish.evidence.extract import extract as unpack

    path = unpack(file, out)
    typer.echo(console.shown(path))
    console.next_step(f"vflops verify {console.shown(path)}", "was it altered?")


def reproduce(
    run: RunOrArchive = None,
    data: Annotated[
        Path | None, typer.Option(help="Where that data is here; as recorded by default.")
    ] = None,
    on: options.On = None,
    container: options.Container = None,
    allow_command: Annotated[
        bool,
        typer.Option("--allow-command", help="Run the author's own program, if the run did."),
    ] = False,
    out: options.Out = Path("runs"),
    quiet: options.Quiet = False,
) -> None:
    """Run the recorded settings again on this machine, and compare."""
    from vflops.cli.terminal import console
    from vflops.cli.terminal.columns import columns
    from vflops.cli.terminal.run_display import Progress
    from vflops.errors import CheckFailed
    from vflops.run import pipeline
    from vflops.studies.reproduce import reproduce as again
    from vflops.studies.reproduce.reproduction import COLUMNS, rows

    path = run if run is not None else console.open_run(None).path
    with again.opened(path) as recorded:
        for line in recorded.alterations:
            console.say(f"the recorded run was altered: {line}")
        settings = again.settings_of(
            recorded.folder, data, on=on, container=container, allow_command=allow_command
        )
        with Progress(quiet=quiet) as progress:
            name = recorded.folder.record.workload
            folder = pipeline.start(out, name, settings, progress.watch)
            found = again.compare(recorded, folder)
            found.write(again.reproduction_file(folder))
            pipeline.conclude(folder, progress.watch)
    print()
    for sentence in found.sentences:
        console.say(sentence, file=sys.stdout)
    if found.figures:
        print(columns([COLUMNS, *rows(found)], right=(1, 2, 3)))
    print(f"\nwritten: {console.shown(again.reproduction_file(folder))}")
    if found.contradictions:
        raise CheckFailed(
            f"not reproduced: {'; '.join(found.contradictions)}",
            hint=f"what differs: {console.shown(again.reproduction_file(folder))}",
        )
    console.next_step(f"vflops report {console.shown(folder.path)}", "the page of the new run")
