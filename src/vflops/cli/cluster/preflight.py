"""``vflops preflight``: checks the nodes of a run in about a minute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vflops.launch.node_check.findings import Finding

_SHOWN = 3
"""How many values of healthy nodes are shown in one row."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(preflight)


def preflight(
    on: Annotated[str, typer.Option(help="local or slurm.")] = "local",
    nodes: Annotated[
        int | None,
        typer.Option(help="Number of SLURM nodes; default: those of the current allocation."),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(min=0, help="GPUs to request on each node; default: all that SLURM lists."),
    ] = None,
    limit: Annotated[
        float, typer.Option(min=1, help="Seconds that a node may take to answer.")
    ] = 60.0,
    out: Annotated[
        Path, typer.Option(help="Shared folder in which run folders will be created.")
    ] = Path("runs"),
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check the nodes of a run. Shared folder, versions, free space, clocks, GPUs, network."""
    from vflops.cli.terminal.columns import columns
    from vflops.cli.terminal.console import next_step, say, shell_path
    from vflops.errors import CheckFailed
    from vflops.launch import site
    from vflops.launch.factory import launcher_class
    from vflops.launch.node_check import preflight_run

    result, folder = preflight_run.preflight(
        out,
        on,
        site.find_site(),
        nodes=nodes,
        gpus=gpus,
        limit_s=limit,
        say=say,
    )
    if json:
        typer.echo(result.to_json(), nl=False)
    else:
        typer.echo(columns(_rows(result.findings)))
        typer.echo(f"\ndetails: {shell_path(folder / 'preflight.json')}", err=True)
    if result.failed:
        failed = ", ".join(dict.fromkeys(finding.node for finding in result.failed))
        raise CheckFailed(f"not ready: {failed}", hint="each line above says what to do")
    if launcher_class(on).is_this_machine:
        next_step("vflops run", "to measure this machine")
    else:
        number = f"--on {on} --nodes {len(result.nodes)}"
        next_step(f"vflops run image-classification {number}", "to start a first run")


def _rows(findings: Sequence[Finding]) -> list[tuple[str, ...]]:
    """Return one row per problem, and one row per check for all nodes without one."""
    rows: list[tuple[str, ...]] = []
    for what in dict.fromkeys(finding.what for finding in findings):
        same_check = [finding for finding in findings if finding.what == what]
        good = [finding for finding in same_check if finding.verdict == "ok"]
        for finding in same_check:
            if finding.verdict != "ok":
                text = f"{finding.value} ({finding.cure})" if finding.cure else finding.value
                rows.append((finding.verdict, what, finding.node, text))
        if good:
            nodes = list(dict.fromkeys(finding.node for finding in good))
            rows.append(("ok", what, _count_text(nodes, what), _values_text(good)))
    return rows


def _count_text(nodes: list[str], what: str) -> str:
    kind = "links" if what == "link" else "nodes"
    return nodes[0] if len(nodes) == 1 else f"{len(nodes)} {kind}"


def _values_text(findings: Sequence[Finding]) -> str:
    values = list(dict.fromkeys(finding.value for finding in findings))
    if len(values) == 1:
        return values[0]
    texts = [f"{finding.node}: {finding.value}" for finding in findings[:_SHOWN]]
    return "; ".join([*texts, *(["…"] if len(findings) > _SHOWN else [])])
