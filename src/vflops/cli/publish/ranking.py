"""``vflops ranking DIR… --site OUT``: writes a static site that ranks submissions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vflops.publish.ranking.entry import Result
    from vflops.publish.ranking.lists import Ranking, Unranked
    from vflops.publish.ranking.static_site import Built

_SHOWN = 3
"""How many lists are shown, how many results of each, and how many that are not ranked."""


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
    challenge_signers: Annotated[
        Path | None,
        typer.Option(
            help="SSH allowed-signers file of keepers: runs must answer a challenge of theirs."
        ),
    ] = None,
    audits: Annotated[
        Path | None, typer.Option(help="Folder with audits of the runs, audit.json and its .sig.")
    ] = None,
    audit_signers: Annotated[
        Path | None,
        typer.Option(help="SSH allowed-signers file of auditors: audits by others do not count."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the lists as JSON.")] = False,
) -> None:
    """Rank submissions on a static site. By performance and by energy; reads what changed."""
    from vflops.cli.terminal import console
    from vflops.errors import UsageError
    from vflops.publish.ranking import static_site
    from vflops.publish.ranking.audit_join import AuditSources
    from vflops.publish.ranking.judge import TrustedKeys
    from vflops.publish.ranking.submission_folders import ARCHIVE
    from vflops.text import printable
    from vflops.units import count

    lists = {
        "--signers": signers,
        "--challenge-signers": challenge_signers,
        "--audit-signers": audit_signers,
    }
    for option, path in lists.items():
        if path is not None and not path.is_file():
            raise UsageError(f"{option} {path} does not exist", hint="see docs/how-to/ranking.md")
    if audit_signers is not None and audits is None:
        raise UsageError(
            "--audit-signers has no effect without audits", hint="name their folder: --audits DIR"
        )
    for archive in add or []:
        if not static_site.add(archive, folders[0]):
            typer.echo(f"{printable(archive.name)} is already among the submissions", err=json)
    trusted = TrustedKeys(signers, challenge_signers)
    sources = AuditSources(audits, audit_signers)
    built = static_site.build(folders, site, trusted=trusted, audits=sources, progress=_progress)
    if json:
        from vflops.publish.ranking.ranking_document import ranking_document

        document = ranking_document(built.ranking, built.energy, built.unusable_audits)
        typer.echo(document.to_json(), nl=False)
        return
    typer.echo(f"{count(built.submissions, 'submission')}, {built.read} new or changed")
    _show_ranked(built.ranking)
    _show_energy(built.energy)
    for dispute in built.ranking.disputes[:_SHOWN]:
        console.say(f"{dispute.reason}; keep only those of its author", file=sys.stdout)
    _show_audits(built)
    if built.to_retry:
        typer.echo(
            f"{count(built.to_retry, 'submission')} not read because of a fault of this machine, "
            "such as no permission, memory, time or space; the next build tries again"
        )
    if built.skipped:
        first_paths = ", ".join(console.shell_path(path) for path in built.skipped[:_SHOWN])
        more = f" and {len(built.skipped) - _SHOWN} more" if len(built.skipped) > _SHOWN else ""
        typer.echo(
            f"left out, neither a run folder nor an archive ({ARCHIVE}): {first_paths}{more}"
        )
    typer.echo(f"{count(built.written, 'page')} written, {console.shell_path(built.index)}")
    console.open_page(built.index, "the pages (copy the folder to publish them)")


def _show_ranked(ranking: Ranking) -> None:
    """Print how many results are ranked, the first ones of the lists, and why a few are not."""
    from vflops.units import count, quantity

    ranked, unranked = count(len(ranking.ranked), "result"), ranking.unranked
    note = f", {len(unranked)} not; the page says why" if unranked else ""
    typer.echo(f"{ranked} ranked{note}")
    _show_lists(ranking, lambda result: (quantity(result.score, result.unit), _regulated(result)))
    _show_unranked(unranked)


def _show_energy(energy: Ranking) -> None:
    """Print the same about the energy lists, with what was measured and how."""
    from vflops.units import count, quantity

    if not (energy.ranked or energy.unranked):
        return
    ranked, unranked = count(len(energy.ranked), "result"), energy.unranked
    note = f", {len(unranked)} without valid evidence of power" if unranked else ""
    typer.echo(f"{ranked} ranked by energy{note}")
    _show_lists(
        energy,
        lambda result: (
            quantity(result.per_watt, f"{result.unit}/W"),
            f"{quantity(result.power.power_w, 'W')} by {result.power.method}",
        ),
    )
    _show_unranked(unranked)


def _show_audits(built: Built) -> None:
    """Print how many audits count, and why a few do not."""
    from vflops.cli.terminal import console
    from vflops.text import printable
    from vflops.units import count

    listed = [row.entry for row in built.ranking.ranked]
    listed += [row.entry for row in built.ranking.unranked]
    entries = {id(entry): entry for entry in listed}.values()
    audits = [(e.place, a) for e in entries if e.audited for a in e.audited.audits]
    others = [(audit.place, audit.reason) for audit in built.unusable_audits]
    others += [
        (f"{place}, audit of {audit.day} by {audit.auditor}", audit.reason)
        for place, audit in audits
        if audit.reason
    ]
    if not audits and not others:
        return
    counting = sum(audit.counts for _, audit in audits)
    note = f", {len(others)} not" if others else ""
    typer.echo(f"{count(counting, 'audit')} counted{note}")
    for place, reason in others[:_SHOWN]:
        console.say(f"{printable(place)}: {reason}", indent=2, file=sys.stdout)


def _show_lists(ranking: Ranking, figures: Callable[[Result], tuple[str, str]]) -> None:
    """Print the first results of the first lists."""
    for facets, rows in islice(groupby(ranking.ranked, lambda row: row.facets), _SHOWN):
        typer.echo(f"  {', '.join(facets)}:")
        for row in islice(rows, _SHOWN):
            challenge = row.entry.challenge.text if row.entry.challenge else ""
            source = row.entry.source or "unsigned"
            audited = row.entry.audited.text if row.entry.audited else ""
            audit = f"audited by {audited}" if audited else ""
            parts = [source, row.entry.system, *figures(row.result), challenge, audit]
            typer.echo(f"    {row.rank}. {'; '.join(filter(None, parts))}")


def _regulated(result: Result) -> str:
    """Return the regulated score of a search, which stands beside the score that ranks it."""
    from vflops.results.score.search_text import UNDEFINED_REGULATED
    from vflops.units import quantity

    if result.unit != "OPS":
        return ""
    undefined = result.regulated is None
    value = UNDEFINED_REGULATED if undefined else quantity(result.regulated, "OPS")
    return f"regulated score {value}"


def _show_unranked(unranked: Sequence[Unranked]) -> None:
    for result in unranked if len(unranked) <= _SHOWN else ():
        typer.echo(f"  {result.entry.place}: {'; '.join(result.reasons)}")


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"read {done} of {total} …", end="\n" if done == total else "\r", file=sys.stderr)
