"""``vflops scale``: a workload at several scales, as HPC AI500 V3.0's experiments run it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflops.cli import options
from vflops.errors import UsageError

if TYPE_CHECKING:
    from vflops.config.settings import Settings


class Kind(StrEnum):
    """Which experiment."""

    WEAK = "weak"
    BAGGING_VS_DATA = "bagging-vs-data"
    TRADE_OFF = "trade-off"


class Batch(StrEnum):
    """Whose batch stays the same when ranks are added."""

    RANK = "rank"
    MODEL = "model"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(scale)


def scale(
    workload: Annotated[str, typer.Argument(help="What to train, see `vflops list`.")],
    kind: Annotated[
        Kind,
        typer.Option(
            help="weak: M grows; bagging-vs-data: M against P; trade-off: M × P at one scale."
        ),
    ] = Kind.WEAK,
    scales: Annotated[
        str | None, typer.Option(help="Scales, e.g. 1,2,4; by default 1, 2, 4 … that fit here.")
    ] = None,
    scale: Annotated[
        int | None, typer.Option(help="The scale of a trade-off; by default all slots here.")
    ] = None,
    ranks: Annotated[int, typer.Option(help="Weak scaling: ranks of each model.", min=1)] = 1,
    batch: Annotated[
        Batch, typer.Option(help="Whose batch stays the same when a model gets more ranks.")
    ] = Batch.RANK,
    profile: options.Profile = None,
    on: options.On = None,
    container: options.Container = None,
    repeat: Annotated[
        int | None, typer.Option(help="Trainings of each point, each with the next seed.")
    ] = None,
    seed: options.Seed = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the experiment; one that is there is gone on with."),
    ] = None,
    config: options.Config = None,
    set_: options.Set = None,
    quiet: options.Quiet = False,
) -> None:
    """Train at several scales and draw how speed and quality grow."""
    from vflops.cli import console
    from vflops.cli.columns import columns
    from vflops.cli.progress import Progress
    from vflops.errors import CheckFailed
    from vflops.scale.experiment import Experiment, pairs
    from vflops.scale.result import table

    flags = {"launch.on": on, "launch.container": container, "repeat": repeat}
    given = [f"{key}={value}" for key, value in flags.items() if value is not None]
    settings = options.settings(
        profile,
        seed,
        config,
        ["micro.benchmarks=[]", *(set_ or []), *given],
        workloads=_one(workload),
    )
    name = next(iter(settings.workloads))
    chosen = _scales(kind, scales, scale, ranks, settings)
    experiment = Experiment.of(
        out or Path("runs") / f"scale-{kind.value}-{name}",
        name,
        kind.value,
        pairs(kind.value, chosen, ranks),
        settings,
        batch.value,
    )
    with Progress(quiet=quiet) as progress:
        found = experiment.run(progress.watch)
    typer.echo("\n" + columns(table(found), right=range(8)))
    typer.echo(f"\nfigures  {console.shown(experiment.folder / 'scale.json')}")
    typer.echo(f"page     {console.shown(experiment.page_file)}")
    failed = [p for p in found.points if p.figures and p.figures.checks_failed]
    for point in failed:
        typer.echo(f"not every rule is met: vflops check {experiment.folder / (point.run or '')}")
    console.next_step(f"open {experiment.page_file.resolve().as_uri()}", "the curves, offline")
    if failed:
        raise typer.Exit(CheckFailed.exit_code)


def _one(workload: str) -> str:
    if workload == "suite":
        raise UsageError("suite: an experiment has one workload", cure="see vflops list")
    return workload


def _scales(
    kind: Kind, scales: str | None, scale: int | None, ranks: int, settings: Settings
) -> list[int]:
    """The scales that were asked for, rising; else those that fit this machine."""
    one = kind is Kind.TRADE_OFF
    if (scales if one else scale) is not None:
        wrong, right = ("--scales", "--scale") if one else ("--scale", "--scales")
        raise UsageError(f"{wrong} with --kind {kind.value}", cure=f"say {right}")
    if ranks > 1 and kind is not Kind.WEAK:
        raise UsageError(
            f"--ranks {ranks} with --kind {kind.value}", cure="it follows: leave it out"
        )
    if scale is not None:
        return _counts([str(scale)], "--scale")
    if scales is not None:
        return _counts(scales.split(","), "--scales")
    slots = _slots(settings, "--scale" if one else "--scales")
    most = slots // ranks
    return [slots] if one else [1 << power for power in range(most.bit_length())] or [1]


def _counts(words: list[str], option: str) -> list[int]:
    try:
        found = sorted({int(word) for word in words})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise UsageError(
            f"{option} {','.join(words)}: not whole numbers from 1 up", cure=f"e.g. {option} 2"
        )
    return found


def _slots(settings: Settings, option: str) -> int:
    from vflops.launch.choose import nodes

    if settings.launch.on != "local":
        raise UsageError(
            f"launch.on = {settings.launch.on} and no scale: how much of it is yours?",
            cure=f"say it: {option} …",
        )
    (section,) = settings.workloads.values()
    return sum(node.slots for node in nodes(settings.launch, section["train"]["device"]))
