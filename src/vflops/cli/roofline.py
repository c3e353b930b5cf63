"""``vflops roofline``: what bounds a model on this machine, drawn and in words."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from vflops.cli import options


class Format(StrEnum):
    """What the picture is written as."""

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
        str | None, typer.Option(help="Shape of one sample, for your own model.")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Samples a step.", min=1)] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32, bf16 …; by default the fastest measured.")
    ] = None,
    rules: Annotated[str, typer.Option(help="Rule set; see vflops list.")] = "hpcai500",
    export: Annotated[Format, typer.Option(help="Page or picture.")] = Format.HTML,
    out: Annotated[Path | None, typer.Option(help="File to write.")] = None,
) -> None:
    """Place models under the measured ceilings and say what bounds them."""
    from vflops.cli import console
    from vflops.flops.count import count
    from vflops.flops.rules import rule_set
    from vflops.flops.source import graph_of, parse_input
    from vflops.roofline.page import Roofline

    rule = rule_set(rules)
    contents = console.read_run(run)
    folder = contents.folder
    if model is None and batch is None:
        found = contents.graphs[:1]
    else:
        inputs = [parse_input(input)] if input else []
        size = batch or folder.record.settings.count.batch
        found = [graph_of(name, inputs=inputs, batch=size) for name in model or ["resnet50"]]
    picture = Roofline.of(
        folder.record, contents.measurements, [count(each, rule) for each in found], precision
    )
    path = out or folder.path / f"roofline.{export.value}"
    picture.write(path, export.value)
    for sentence in picture.sentences:
        typer.echo(f"· {sentence}")
    typer.echo(f"written: {console.shown(path)}")
    name = console.shown(folder.path)
    console.next_step(f"vflops roofline {name} --batch 256", "a larger batch reuses the weights")
