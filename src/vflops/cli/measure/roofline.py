"""``vflops roofline``: what limits a model on this machine, as a chart and as sentences."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflops.cli import options
from vflops.errors import UsageError

if TYPE_CHECKING:
    from vflops.record.formats.graph import Graph


class Format(StrEnum):
    """File formats of the chart."""

    HTML = "html"
    SVG = "svg"
    PNG = "png"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(roofline)


def roofline(
    run: options.Run = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A built-in name or package.module:callable.")
    ] = None,
    input: Annotated[
        list[str] | None, typer.Option(help="Shape of one sample, for your own model.")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Batch size.", min=1)] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="fp32, bf16 …; by default that of the training, else the fastest."),
    ] = None,
    rules: Annotated[
        str | None,
        typer.Option(
            help="Counting convention, see `vflops list`; by default that of the workload, "
            "executed for your own model."
        ),
    ] = None,
    export: Annotated[
        Format | None, typer.Option(help="File format; by default that of --out, or html.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write.")] = None,
) -> None:
    """Place models under the measured ceilings. Shows what limits them, and what was achieved."""
    from vflops.cli.terminal import console
    from vflops.counting.conventions import convention
    from vflops.counting.count import count
    from vflops.counting.input_specs import parse_input
    from vflops.models.model_graph import graph_of
    from vflops.publish.roofline_page import Roofline
    from vflops.results.score.scoring_convention import model_convention

    chosen = None if rules is None else convention(rules)
    export = export or _format(out)
    contents = console.read_run(run or _newest_with_ceilings())
    folder = contents.folder
    own_models = not (model is None and batch is None and input is None)
    chart = None
    if not own_models and rules is None:
        chart = Roofline.from_trainings(contents, precision)
    if not own_models:
        trained = {job.record.workload for job in contents.training_jobs}
        graphs = [graph for graph in contents.graphs if graph.model in trained]
        graphs = graphs or contents.graphs
    else:
        inputs = [parse_input(text) for text in input or ()]
        batch_size = batch or folder.record.settings.count.batch
        with console.working("capturing"):
            graphs = [
                graph_of(name, inputs=inputs, batch=batch_size) for name in model or ["resnet50"]
            ]
    if chart is None:
        counts = [
            count(graph, chosen or model_convention(contents, graph.model)) for graph in graphs
        ]
        chart = Roofline.from_counts(contents, counts, precision)
    path = out or folder.path / f"{_name(model, batch)}.{export.value}"
    with console.working("drawing"):
        chart.write(path, export.value)
    for sentence in chart.sentences:
        console.say(f"· {sentence}", indent=2, file=sys.stdout)
    typer.echo(f"written: {console.shell_path(path)}")
    if export is Format.HTML:
        console.next_step(
            f"vflops roofline {console.shell_path(folder.path)} --export svg",
            "write an image for a paper",
        )
    else:
        console.next_step(
            f"vflops report {console.shell_path(folder.path)}", "write the report of the run"
        )


def _format(out: Path | None) -> Format:
    """Return the format that the suffix of the file names; html without a file."""
    suffix = out.suffix.removeprefix(".").lower() if out else Format.HTML.value
    if suffix not in list(Format):
        raise UsageError(
            f"--out {out} does not end with .html, .svg or .png",
            hint="rename it, or add --export html, svg or png",
        )
    return Format(suffix)


def _newest_with_ceilings() -> Path | None:
    """Return the user's newest run under ``runs/`` with the ceilings of a roofline, if any."""
    from vflops.errors import VflopsError
    from vflops.record.folder import RunFolder, newest_first
    from vflops.record.own_runs import is_own
    from vflops.record.readout.contents import Contents
    from vflops.results.roofline.run_ceilings import run_ceilings

    for path in filter(is_own, newest_first(Path("runs"))):
        try:
            contents = Contents(RunFolder.open(path))
            machine = run_ceilings(contents)
            graphs: Sequence[Graph | None] = contents.graphs or (None,)
        except VflopsError:
            continue
        if machine.memory and any(machine.precisions(graph) for graph in graphs):
            return path
    return None


def _name(models: list[str] | None, batch: int | None) -> str:
    parts = ["roofline", *(name.replace(":", ".") for name in models or ())]
    return "-".join([*parts, *([f"batch{batch}"] if batch else [])])
