"""``vflops verify``, ``sign``, ``archive``, ``extract`` and ``reproduce``."""

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
    typer.Argument(help="A run folder or an archive; by default the newest run under runs/."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (verify, sign, archive, extract, reproduce):
        app.command()(command)


def verify(
    run: RunOrArchive = None,
    signers: Annotated[
        Path | None, typer.Option(help="SSH allowed-signers file with the keys that you trust.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what was altered in a run. Exit code 0 only if it is intact and its signer trusted."""
    from vflops.cli.terminal import console
    from vflops.errors import CheckFailed
    from vflops.publish.evidence.verify import verify as verify_run
    from vflops.record.files.atomic import json_text
    from vflops.record.own_runs import finish_hint, is_own

    path = run if run is not None else console.open_run(None).path
    verification = verify_run(path, signers)
    if json:
        typer.echo(json_text(verification.model_dump(mode="json")), nl=False)
    else:
        for line in _lines(verification):
            console.say(line, indent=11, file=sys.stdout)
    name = console.shell_path(path)
    if verification.alterations:
        alteration_count = (
            f"{len(verification.alterations)} alteration{'s' * (len(verification.alterations) > 1)}"
        )
        raise CheckFailed(
            f"{name} was changed after it was concluded: {alteration_count}",
            hint="ask its author for it again, and compare the SHA-256 of the archive",
        )
    if verification.unconcluded is not None:
        raise CheckFailed(
            f"{name} is not concluded yet: {verification.unconcluded}",
            hint="wait until it ends" if verification.goes_on else finish_hint(path, name),
        )
    if not verification.accepted:
        raise CheckFailed(
            f"{name} is not signed by a key of {signers}",
            hint="it is intact; ask its author to sign it, or to send the line with their key",
        )
    if json:
        return
    if not is_own(path):
        console.next_step(f"vflops reproduce {name}", "run the same settings here and compare")
    elif verification.signed:
        console.next_step(f"vflops archive {name}", "write one file to share")
    else:
        console.next_step(f"vflops sign {name}", "so that others know who made it")


def _lines(verification: Verification) -> list[str]:
    files: list[str] = []
    if verification.intact:
        files = ["files      intact: no file was changed after the run was concluded"]
    elif verification.unaltered:
        files = ["files      unchanged since the run was concluded, but not all are confirmed"]
    return [
        f"run        {verification.run or 'unknown'}",
        *(
            [f"open       not concluded yet: {verification.unconcluded}"]
            if verification.unconcluded
            else []
        ),
        *(f"altered    {line}" for line in verification.alterations),
        *files,
        *(f"unknown    {line}" for line in verification.unconfirmed),
        *(f"note       {line}" for line in verification.notes),
        f"signature  {verification.signature}",
    ]


def sign(
    run: options.Run = None,
    key: Annotated[
        Path | None,
        typer.Option(help="Your SSH key; by default the first of the standard keys in ~/.ssh."),
    ] = None,
) -> None:
    """Sign a run, or the record of an audit, with your SSH key."""
    from vflops.cli.terminal import console
    from vflops.publish.evidence.sign_run import sign_run, signing_key
    from vflops.publish.evidence.signed_audit import (
        NAMESPACE,
        audit_file,
        audit_signature,
        sign_audit,
    )
    from vflops.record.own_runs import is_own

    audit = audit_file(run)
    if audit is not None:
        used_key = sign_audit(audit, key)
        typer.echo(f"signed with {used_key}: {console.shell_path(audit_signature(audit))}")
        show_allowed_line(used_key, NAMESPACE)
        return
    folder = console.open_run(run)
    if not is_own(folder.path):
        console.say("vflops did not start this run here for you: your signature vouches for it")
    previous_key = signing_key(folder)
    used_key = sign_run(folder, key)
    typer.echo(f"signed with {used_key}: {console.shell_path(folder.path / 'manifest.json.sig')}")
    if previous_key not in (None, signing_key(folder)):
        console.say(f"this replaces the signature of another key: {previous_key}", file=sys.stdout)
    show_allowed_line(used_key)
    console.next_step(
        f"vflops archive {console.shell_path(folder.path)}", "write one file to share"
    )


def show_allowed_line(key: Path, namespace: str | None = None) -> None:
    """Print the line that those who trust a key add to their list, if it can be read."""
    from vflops.publish.evidence.sign_run import UNNAMED, allowed_line

    line = allowed_line(key, namespace) if namespace else allowed_line(key)
    if line is not None:
        note = f", with your address instead of {UNNAMED}" if line.startswith(UNNAMED) else ""
        typer.echo(f"readers add this line to their allowed-signers file{note}:\n{line}")


def archive(
    run: options.Run = None,
    out: Annotated[
        str | None, typer.Option(help="File or folder/ to write to; by default next to the run.")
    ] = None,
    checkpoints: Annotated[
        bool,
        typer.Option("--checkpoints", help="Include the checkpoints from which audits start."),
    ] = False,
    anonymous: Annotated[
        bool,
        typer.Option("--anonymous", help="Leave out host names, paths and output of programs."),
    ] = False,
) -> None:
    """Write a run to one file. The same folder gives the same bytes."""
    from vflops.cli.terminal import console
    from vflops.publish.evidence.archive import archive as pack
    from vflops.publish.evidence.archive import states_for_audits
    from vflops.publish.evidence.disclosure import disclosures
    from vflops.record.files import atomic
    from vflops.record.files.digest import file_digest
    from vflops.results.evidence.manifest import signature_file
    from vflops.units import count, quantity

    folder = console.open_run(run)
    if out is not None and out.endswith("/"):
        atomic.make_folder(Path(out))
    states: dict[str, int] = {}
    if checkpoints:
        states = states_for_audits(folder)
        size = quantity(sum(states.values()), "B")
        console.say(f"with {count(len(states), 'checkpoint')} for audits, {size} before packing")
    with console.working("packing"):
        target = None if out is None else Path(out)
        path = pack(folder, target, tuple(states), anonymous=anonymous)
    typer.echo(f"{console.shell_path(path)}\nSHA-256 {file_digest(path).sha256}")
    if checkpoints:
        typer.echo(f"size {quantity(path.stat().st_size, 'B')}")
    if anonymous and signature_file(folder.path).exists():
        console.say("it is not signed: the signature of the run covers the names that it lacks")
    for line in () if anonymous else disclosures(folder):
        console.say(f"its readers see {line}")
    console.next_step(f"vflops verify {console.shell_path(path)}", "check it as its readers will")


def extract(
    file: Annotated[Path, typer.Argument(help="An archive written by `vflops archive`.")],
    out: options.Out = Path("runs"),
) -> None:
    """Unpack the run folder of an archive. Refuses anything but a plain run folder."""
    from vflops.cli.terminal import console
    from vflops.publish.evidence.extract import extract as unpack

    path = unpack(file, out)
    typer.echo(console.shell_path(path))
    console.next_step(f"vflops verify {console.shell_path(path)}", "check whether it was altered")


def reproduce(
    run: RunOrArchive = None,
    data: Annotated[
        Path | None, typer.Option(help="Where the data is on this machine; by default as recorded.")
    ] = None,
    on: options.On = None,
    container: options.Container = None,
    allow_command: options.AllowCommand = False,
    out: options.Out = Path("runs"),
    quiet: options.Quiet = False,
) -> None:
    """Run the recorded settings again on this machine and compare."""
    from vflops.cli.terminal import console
    from vflops.cli.terminal.columns import columns
    from vflops.cli.terminal.run_display import Progress
    from vflops.errors import CheckFailed
    from vflops.run import pipeline
    from vflops.studies.reproduce import reproduce as reproducer
    from vflops.studies.reproduce.reproduction import COLUMNS, rows

    path = run if run is not None else console.open_run(None).path
    with reproducer.open_recorded(path) as recorded:
        for line in recorded.alterations:
            console.say(f"the recorded run was altered: {line}")
        settings = reproducer.settings_of(
            recorded.folder,
            data,
            on=on,
            container=container,
            allow_command=allow_command,
            tell=console.say,
        )
        with Progress(quiet=quiet) as progress:
            name = recorded.folder.record.workload
            challenge = reproducer.repeated_challenge(recorded.folder)
            folder = pipeline.start(out, name, settings, progress.observer, challenge=challenge)
            reproduction = reproducer.compare(recorded, folder)
            reproduction.write(reproducer.reproduction_file(folder))
            pipeline.conclude(folder, progress.observer)
    print()
    for sentence in reproduction.sentences:
        console.say(sentence, file=sys.stdout)
    if reproduction.figures:
        print(columns([COLUMNS, *rows(reproduction)], right=(1, 2, 3)))
    print(f"\nwritten: {console.shell_path(reproducer.reproduction_file(folder))}")
    if reproduction.contradictions:
        raise CheckFailed(
            f"not reproduced: {'; '.join(reproduction.contradictions)}",
            hint=f"see what differs: {console.shell_path(reproducer.reproduction_file(folder))}",
        )
    console.next_step(
        f"vflops report {console.shell_path(folder.path)}", "write the report of the new run"
    )
