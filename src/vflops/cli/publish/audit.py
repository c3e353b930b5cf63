"""``vflops audit``: train parts of a recorded run again, and compare."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflops.cli import options

if TYPE_CHECKING:
    from vflops.results.evidence.audit_record import AuditedSegment, AuditRecord

_COLUMNS = ("part", "chosen", "verdict", "recorded", "here")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(audit)


def audit(
    run: options.Run = None,
    segments: Annotated[
        int,
        typer.Option(min=0, help="Parts to draw at random, besides those that are always audited."),
    ] = 3,
    data: Annotated[
        Path | None, typer.Option(help="Where the data is on this machine; by default as recorded.")
    ] = None,
    trusted: Annotated[
        Path | None,
        typer.Option(
            help="A run by the same hardware and software that you trust, to measure the tolerance."
        ),
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Sign the record with this SSH key.")] = None,
    out: Annotated[Path, typer.Option(help="Folder in which audits are written.")] = Path("audits"),
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: options.Quiet = False,
    discard: Annotated[
        bool,
        typer.Option("--discard", help="Only delete the checkpoints that RUN keeps for audits."),
    ] = False,
) -> None:
    """Train random parts of a run again and compare with its log. Exit code 0 if all agree."""
    from vflops.cli.publish.evidence import show_allowed_line
    from vflops.cli.terminal import console
    from vflops.errors import CheckFailed
    from vflops.publish.evidence.signed_audit import NAMESPACE, sign_audit
    from vflops.record.folder import RunFolder
    from vflops.results.evidence.anonymous_record import anonymity_note
    from vflops.studies.audit.auditing import audit as audit_run
    from vflops.studies.audit.kept_states import discard_states

    folder = console.open_run(run)
    if discard:
        typer.echo(discard_states(folder))
        name = console.shell_path(folder.path)
        console.next_step(
            f"vflops archive {name}", "pack the rest as evidence that others can check"
        )
        return
    if note := anonymity_note(folder.path):
        console.say(note)
    record, path = audit_run(
        folder,
        out,
        count=segments,
        data=data,
        trusted=None if trusted is None else RunFolder.open(trusted),
        show=(lambda text: None) if quiet else console.say,
        on_segment=(lambda row: None) if quiet else (lambda row: console.say(_row_text(row))),
    )
    signed_with = None if key is None else sign_audit(path, key)
    if json:
        typer.echo(record.to_json(), nl=False)
    else:
        _show(record, path)
        if signed_with is not None:
            show_allowed_line(signed_with, NAMESPACE)
    if record.verdict not in ("confirmed", "consistent"):
        raise CheckFailed(f"{record.verdict}: {record.detail}", hint=_hint(record))
    if key is None:
        console.next_step(
            f"vflops sign {console.shell_path(path)}", "so that others know who audited it"
        )
    else:
        options = f"--site site --audits {console.shell_path(out)} --audit-signers AUDITORS"
        console.next_step(f"vflops ranking runs {options}", "show it in a ranking")


def _row_text(row: AuditedSegment) -> str:
    return f"{row.verdict}: {row.detail}"


def _show(record: AuditRecord, path: Path) -> None:
    from vflops.cli.terminal import console
    from vflops.cli.terminal.columns import columns

    rows = [
        (
            row.name,
            row.reason,
            row.verdict,
            _speed(row.samples_per_s_recorded),
            _speed(row.samples_per_s_here),
        )
        for row in record.segments
    ]
    print(columns([_COLUMNS, *rows], right=(3, 4)))
    share = record.steps_audited / max(record.steps_total, 1)
    out = sys.stdout
    console.say(
        f"{record.verdict}: {record.detail}; {share:.1%} of the steps were trained again", file=out
    )
    if record.same_stack:
        console.say("compared bit by bit: machine and software are those of the run", file=out)
    else:
        reasons = "; ".join(record.stack_differences[:3])
        console.say(f"compared within a measured tolerance: {reasons}", file=out)
    for odds in record.odds:
        console.say(
            f"a forgery of {odds.forged_share:.0%} of the steps, in the worst place, is among "
            f"these parts with a probability of at least {odds.probability:.0%}",
            file=out,
        )
    print(f"\nwritten: {console.shell_path(path)}")


def _speed(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}/s"


def _hint(record: AuditRecord) -> str:
    if record.verdict == "contradicted":
        return "ask the author of the run about it, and audit again with more --segments"
    return "audit on a quiet machine of the same kind, with the checkpoints that the run kept"
