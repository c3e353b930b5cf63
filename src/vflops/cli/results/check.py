"""``vflops check``: checks runs by the rules, from their folders alone."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflops.cli.terminal.columns import columns, heading

if TYPE_CHECKING:
    from vflops.record.folder import RunRecord
    from vflops.record.readout.contents import Contents
    from vflops.results.check.findings import Findings
    from vflops.results.check.level import Level


class LevelName(StrEnum):
    """The levels that can be required; any run of the same problem is at level free."""

    HARDWARE = "hardware"
    SYSTEM = "system"


Runs = Annotated[
    list[Path] | None, typer.Argument(help="Run folders; by default the newest under runs/.")
]
Rules = Annotated[
    str | None,
    typer.Option(help="Rule set, see `vflops list`; by default that of the run's profile."),
]
ChallengeSigners = Annotated[
    Path | None,
    typer.Option(
        help="SSH allowed-signers file with the keys of keepers: runs must answer a challenge that"
        " one of them issued."
    ),
]
Received = Annotated[
    str | None,
    typer.Option(help="With --challenge-signers: when the runs were handed in, in UTC."),
]
RequiredLevel = Annotated[
    LevelName | None,
    typer.Option(
        help="Level that the runs must claim: hardware (the reference code on another machine) or"
        " system (another framework, too)."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON; a list for several runs.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(check)


def check(
    runs: Runs = None,
    rules: Rules = None,
    challenge_signers: ChallengeSigners = None,
    received: Received = None,
    level: RequiredLevel = None,
    json: Json = False,
) -> None:
    """Check runs by the rules. Exit code 0 only if all runs meet all rules."""
    from vflops.cli.results.score import write_result
    from vflops.cli.terminal import console
    from vflops.errors import CheckFailed
    from vflops.publish.evidence.archive_limits import LIMITS
    from vflops.publish.evidence.challenges import demand
    from vflops.results.check.checking import check as check_run
    from vflops.results.check.checking import demand_challenge
    from vflops.results.check.rule_sets import rule_set_of
    from vflops.results.evidence.anonymous_record import anonymity_note

    received_s = _received_s(received, challenge_signers)
    results: list[tuple[str, Findings]] = []
    folders = []
    above: list[str] = []
    for run in runs or (None,):
        LIMITS.check_folder(console.open_run(run).path)
        contents = console.read_run(run)
        findings = check_run(contents, rules)
        if findings.rule_set == rule_set_of(contents.folder.record.settings).name:
            write_result(findings, contents.folder.findings_file, contents)
        if challenge_signers is not None:  # not stored: that is what the folder alone says
            required = demand(contents.folder.record, challenge_signers, received_s)
            findings = demand_challenge(findings, contents, required)
        results.append((console.shell_path(contents.folder.path), findings))
        folders.append(contents.folder)
        above += [] if level is None else _above_level(contents, level.value)
    if json:
        _print_json([findings for _, findings in results])
    else:
        for (name, findings), folder in zip(results, folders, strict=True):
            record = folder.record
            _print_table(name if len(results) > 1 else "", findings, record)
    for folder in folders:
        if note := anonymity_note(folder.path):
            console.say(note)
    for line in above:
        console.say(line)
    if above and level is not None:
        raise CheckFailed(
            f"level {level.value} cannot be claimed: {len(above)} layers differ from the reference"
            if len(above) > 1
            else f"level {level.value} cannot be claimed: a layer differs from the reference"
        )
    _raise_if_broken(results, rules)
    if not json:
        console.open_report(folders[0])


def _above_level(contents: Contents, level: Level) -> list[str]:
    """Return a line per layer that keeps a run from claiming the level."""
    from vflops.cli.terminal import console
    from vflops.results.check.level import levels

    name, found = console.shell_path(contents.folder.path), levels(contents)
    if found.reason is not None:
        return [f"{name}: the level is not known: {found.reason}"]
    return [
        f"{name}: {layer.layer} differs: {', '.join(map(str, layer.differences))}"
        for layer in found.above(level)
    ]


def _received_s(received: str | None, challenge_signers: Path | None) -> float | None:
    """Return ``--received`` as Unix time."""
    from datetime import UTC, datetime

    from vflops.errors import UsageError

    if received is None:
        return None
    if challenge_signers is None:
        raise UsageError(
            "--received says when the answer to a challenge was handed in",
            hint="add --challenge-signers FILE",
        )
    try:
        time = datetime.fromisoformat(received)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"--received {received!r} is not a time", hint="write it as 2026-01-31T12:00Z"
        ) from error


def _print_json(documents: Sequence[Findings]) -> None:
    if len(documents) == 1:
        typer.echo(documents[0].to_json(), nl=False)
        return
    text = ",\n".join(findings.to_json().rstrip("\n") for findings in documents)
    typer.echo(f"[\n{text}\n]")


def _print_table(name: str, findings: Findings, record: RunRecord) -> None:
    from vflops.results.check.advice import with_advice

    rules = f"rule set {findings.rule_set}/{findings.rule_set_version}: {findings.tally}"
    print(heading(f"{name}\n{rules}" if name else rules))
    applying = [finding for finding in findings.findings if finding.verdict != "not applicable"]
    print(
        columns(
            [
                (finding.verdict, finding.rule, f"{finding.title}: {finding.text}")
                for finding in applying
            ]
        )
    )
    not_applicable = [
        finding.rule for finding in findings.findings if finding.verdict == "not applicable"
    ]
    if not_applicable:
        print(columns([("not applicable:", ", ".join(not_applicable))]))
    if findings.failures:  # last, because the table is long
        print(heading("\nnot met:"))
        print(
            columns([(finding.rule, with_advice(finding, record)) for finding in findings.failures])
        )


def _raise_if_broken(results: Sequence[tuple[str, Findings]], rules: str | None) -> None:
    """Raise if a run does not meet its rules."""
    from vflops.errors import CheckFailed

    broken = [(name, findings) for name, findings in results if not findings.passed]
    if not broken:
        return
    name, findings = broken[0]
    failed = [finding.rule for finding in findings.failures]
    verb = "is" if len(failed) == 1 else "are"
    message = f"{len(failed)} of {findings.applying} rules {verb} not met: {', '.join(failed)}"
    hint = None  # the evidence of a single run has been printed
    if len(results) > 1:
        message = f"{len(broken)} of {len(results)} runs do not meet their rules; {name}: {message}"
        rules_option = f" --rules {rules}" if rules else ""
        hint = f"for its evidence: vflops check {name}{rules_option}"
    raise CheckFailed(message, hint=hint)
