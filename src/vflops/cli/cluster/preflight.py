"""``vflops preflight``: the nodes of a run, checked in a minute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

if TYPE_CHECKING:
    from vflops.launch.preflight.preflight_findings import Finding

_SHOWN = 3
"""Values of nodes that are well, beside each other."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(preflight)


def preflight(
    on: Annotated[str, typer.Option(help="local or slurm.")] = "local",
    nodes: Annotated[
        int | None, typer.Option(help="How many of SLURM's; those of an allocation that is held.")
    ] = None,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each node to ask SLURM for.")] = 0,
    limit: Annotated[float, typer.Option(min=1, help="Seconds that a node may be silent.")] = 60.0,
    out: Annotated[
        Path, typer.Option(help="Shared folder that run folders will be made in.")
    ] = Path("runs"),
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check the nodes of a run. Shared folder, versions, room, clocks, GPUs, network."""
    from vflops.cli.terminal.columns import columns
    from vflops.cli.terminal.console import next_step, say, shown
    from vflops.errors import CheckFailed, unknown_name
    from vflops.launch import site
    from vflops.launch.preflight import preflight_run

    if on not in ("local", "slurm"):
        raise unknown_name("launcher", on, ("local", "slurm"))
    found, folder = preflight_run.preflight(
        out,
        cast(Literal["local", "slurm"], on),
        site.find(),
        nodes=nodes,
        gpus=gpus,
        limit_s=limit,
        say=say,
    )
    if json:
        typer.echo(found.to_json(), nl=False)
    else:
        typer.echo(columns(_rows(found.findings)))
        typer.echo(f"\nin full: {shown(folder / 'preflight.json')}", err=True)
    if found.failed:
        names = ", ".join(dict.fromkeys(finding.node for finding in found.failed))
        raise CheckFailed(f"not ready: {names}", hint="each line above says what to do")
    if on == "local":
        next_step("vflops run", "what this machine is worth")
    else:
        models = f"--models {len(found.nodes)} --on {on}"
        next_step(f"vflops run image-classification {models}", "a first run")


def _rows(findings: Sequence[Finding]) -> list[tuple[str, ...]]:
    """What is wrong, each by itself; what is well, all nodes in a line."""
    rows: list[tuple[str, ...]] = []
    for what in dict.fromkeys(finding.what for finding in findings):
        these = [finding for finding in findings if finding.what == what]
        well = [finding for finding in these if finding.verdict == "ok"]
        for finding in these:
            if finding.verdict != "ok":
                words = f"{finding.value} ({finding.cure})" if finding.cure else finding.value
                rows.append((finding.verdict, what, finding.node, words))
        if well:
            places = list(dict.fromkeys(finding.node for finding in well))
            rows.append(("ok", what, _counted(places, what), _together(well)))
    return rows


def _counted(places: list[str], what: str) -> str:
    kind = "links" if what == "link" else "nodes"
    return places[0] if len(places) == 1 else f"{len(places)} {kind}"


def _together(findings: Sequence[Finding]) -> str:
    values = list(dict.fromkeys(finding.value for finding in findings))
    if len(values) == 1:
        return values[0]
    words = [f"{finding.node}: {finding.value}" for finding in findings[:_SHOWN]]
    return "; ".join([*words, *(["…"] if len(findings) > _SHOWN else [])])
