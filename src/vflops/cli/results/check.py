"""``vflops check``: run folders judged by the rules, from what they hold alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflops.cli.terminal.columns import columns, heading

if TYPE_CHECKING:
    from vflops.results.check.findings import Finding, Findings

Runs = Annotated[
    list[Path] | None, typer.Argument(help="Run folders; the newest under runs/ when left out.")
]
Rules = Annotated[
    str | None,
    typer.Option(help="Rule set (vflops list); by default the one of the run's profile."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON: a list where there are several.")]

_ADVICE = {
    "complete": "vflops resume goes on with it",
    "quiet": "run it again when the machine is free",
    "plausible": "vflops micro gemm --budget 20 tries again, best when the machine is free",
    "score": "vflops score makes it again",
    "manifest": "vflops verify says what else is not as it was",
    "ceilings": "run it again with its micro-benchmarks",
}
"""What to do about a rule that is not met, where there is one thing to do."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(check)


def check(runs: Runs = None, rules: Rules = None, json: Json = False) -> None:
    """Judge runs by the rules. Exit code 0 only if each of them meets all of them."""
    from vflops.cli.results.score import keep
    from vflops.cli.terminal import console
    from vflops.results.check.checking import check as judge
    from vflops.results.check.rule_sets import rule_set_of

    found: list[tuple[str, Findings]] = []
    folders = []
    for run in runs or (None,):
        contents = console.read_run(run)
        findings = judge(contents, rules)
        if findings.rule_set == rule_set_of(contents.folder.record.settings).name:
            keep(findings, contents.folder.findings_file, contents)
        found.append((console.shown(contents.folder.path), findings))
        folders.append(contents.folder)
    if json:
        _print_json([findings for _, findings in found])
    else:
        for name, findings in found:
            _print_table(name if len(found) > 1 else "", findings)
    _refuse(found, rules)
    if not json:
        console.open_report(folders[0])


def _print_json(found: Sequence[Findings]) -> None:
    if len(found) == 1:
        typer.echo(found[0].to_json(), nl=False)
        return
    documents = ",\n".join(findings.to_json().rstrip("\n") for findings in found)
    typer.echo(f"[\n{documents}\n]")


def _print_table(name: str, findings: Findings) -> None:
    rules = f"rule set {findings.rule_set}/{findings.rule_set_version}: {findings.tally}"
    print(heading(f"{name}\n{rules}" if name else rules))
    apply = [each for each in findings.findings if each.verdict != "not applicable"]
    print(columns([(each.verdict, each.rule, f"{each.title}: {each.text}") for each in apply]))
    others = [each.rule for each in findings.findings if each.verdict == "not applicable"]
    if others:
        print(columns([("do not apply:", ", ".join(others))]))
    if findings.failures:  # the table is long: what is to be done stands last
        print(heading("\nnot met:"))
        print(columns([(each.rule, _with_advice(each)) for each in findings.failures]))


def _with_advice(finding: Finding) -> str:
    advice = _ADVICE.get(finding.rule)
    return f"{finding.text} → {advice}" if advice else finding.text


def _refuse(found: Sequence[tuple[str, Findings]], rules: str | None) -> None:
    """Say which rules are not met, and where the evidence is."""
    from vflops.errors import CheckFailed

    broken = [(name, findings) for name, findings in found if not findings.passed]
    if not broken:
        return
    name, findings = broken[0]
    failed = [each.rule for each in findings.failures]
    are = "is" if len(failed) == 1 else "are"
    words = f"{len(failed)} of {findings.applying} rules {are} not met: {', '.join(failed)}"
    if len(found) > 1:
        words = f"{len(broken)} of {len(found)} runs do not meet their rules; {name}: {words}"
    by = f" --rules {rules}" if rules else ""
    raise CheckFailed(words, hint=f"all of its evidence: vflops check {name}{by} --json")
