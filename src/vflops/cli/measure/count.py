"""``vflops count MODEL``: counts the operations of one training step by a convention."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from vflops.errors import UsageError


class By(StrEnum):
    """What the rows of the table are."""

    KIND = "kind"
    LAYER = "layer"


class Export(StrEnum):
    """File formats of the table."""

    HTML = "html"
    GRAPH = "graph"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(count)


def count(
    model: Annotated[
        str, typer.Argument(help="A built-in name, see `vflops list`, or package.module:callable.")
    ],
    input: Annotated[
        list[str] | None,
        typer.Option(
            help="Shape of one sample, e.g. 3x224x224, 128:int64 or scalar; tokens=128:int64 for "
            "a keyword argument, value:7 for a plain value; repeat for each input."
        ),
    ] = None,
    batch: Annotated[int, typer.Option(help="Batch size.", min=1)] = 1,
    rules: Annotated[
        str | None,
        typer.Option(
            help="Counting convention, see `vflops list`; by default hpcai500 for the ResNets, "
            "executed for other models."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Conventions to compare with, separated by commas, e.g. palm,megatron,causal."
        ),
    ] = None,
    by: Annotated[By, typer.Option(help="What the rows of the table are.")] = By.KIND,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    export: Annotated[
        Export | None, typer.Option(help="Also write the table (html) or the graph (graph).")
    ] = None,
    file: Annotated[Path | None, typer.Option("--out", help="File to export to.")] = None,
) -> None:
    """Count the operations of one training step. Forward, backward and update."""
    from vflops.cli.terminal.console import console, next_step, shell_path, working
    from vflops.counting.conventions import convention
    from vflops.counting.count import count as count_graph
    from vflops.counting.input_specs import parse_input
    from vflops.models.model_graph import graph_of
    from vflops.models.model_registry import default_convention
    from vflops.publish import counts as show
    from vflops.record.folder import newest_own

    names = _compared(rules, _names(against), default_convention(model))
    conventions = [convention(name) for name in names]
    inputs = [parse_input(text) for text in input or ()]
    with working("capturing the model", in_logs=True):
        graph = graph_of(model, inputs=inputs, batch=batch)
    counts, refusals = [], []
    for counting_convention in conventions:
        try:
            counts.append(count_graph(graph, counting_convention))
        except UsageError as error:
            fault = f"{counting_convention.id} does not apply: {error.message}"
            refusals.append(UsageError(fault, hint=error.hint))
    if refusals and (json or len(counts) < 2):
        raise refusals[0]
    for refusal in refusals:
        typer.echo(f"note: {refusal.message}", err=True)
    if json:
        typer.echo(show.as_json(counts, by.value), nl=False)
    else:
        out = console()
        out.print(show.as_tables(counts, by.value, out.width))
    if export is not None:
        suffix = {"html": "html", "graph": "json"}[export.value]
        content = {"html": "count", "graph": "graph"}[export.value]
        path = file or Path(f"{graph.model.replace(':', '.')}-{content}.{suffix}")
        show.export(counts, by.value, path, export.value)
        typer.echo(f"written: {shell_path(path)}", err=True)
    if not json:
        shapes = "".join(f" --input {shlex.quote(text)}" for text in input or ())
        model_arguments = f"{model}{shapes}" + (f" --batch {batch}" if batch > 1 else "")
        if against is None:
            other = _other_than(names[0])
            command = f"vflops count {model_arguments} --rules {names[0]} --against {other}"
            next_step(command, _PURPOSES[other])
        elif newest_own(Path("runs")) is None:
            next_step("vflops micro", "measure the ceilings of this machine")
        else:
            next_step(
                f"vflops roofline --model {model_arguments}", "show what limits it on this machine"
            )


_PURPOSES = {
    "executed": "compare with what the framework executes",
    "hpcai500": "compare with the rules of HPC AI500",
}
"""What a comparison with the usual conventions is for."""


def _names(against: str | None) -> list[str]:
    """Return the names of a list separated by commas."""
    names = [name.strip() for name in (against or "").split(",")] if against is not None else []
    if "" in names:
        raise UsageError(
            f"--against {against!r} has an empty name",
            hint="separate the names of conventions by single commas: palm,megatron,causal",
        )
    return names


def _compared(rules: str | None, against: list[str], default: str) -> list[str]:
    """Return the names of all conventions to show, each once, the first one as the baseline.

    Without ``rules``, a list that has the default needs no other; a single name does.
    """
    if rules is None and against == [default]:
        rules = _other_than(default)
    elif rules is None and default in against:
        return list(dict.fromkeys(against))
    return list(dict.fromkeys([rules or default, *against]))


def _other_than(name: str) -> str:
    """Return ``executed``, or ``hpcai500`` if ``name`` is ``executed``."""
    return "hpcai500" if name == "executed" else "executed"
