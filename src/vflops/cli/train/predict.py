"""``vflops predict``: how a training would scale, from a run or from typed figures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflops.cli import options
from vflops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vflops.studies.predict.predict_page import Forecast
    from vflops.studies.predict.validation import MeasuredScale

_UPTO = 1024


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(predict)


def predict(
    run: Annotated[
        Path | None, typer.Argument(help="A run folder that figures are taken from.")
    ] = None,
    models: Annotated[str | None, typer.Option(help="Models M, e.g. 1,8; by default 1.")] = None,
    ranks: Annotated[str | None, typer.Option(help="Ranks P of each, e.g. 8,16,64.")] = None,
    upto: Annotated[
        int | None,
        typer.Option(help=f"P doubles up to so many accelerators; by default {_UPTO}."),
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Page to write, with the curves.")] = None,
    measured: Annotated[
        Path | None, typer.Option(help="scale.json or links.json, to be set beside.")
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="The published table beside predictions of it.")
    ] = False,
    config: options.Config = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="One figure or choice, e.g. link.bandwidth=1.25e9; repeatable."),
    ] = None,
) -> None:
    """Predict speed and score of M × P accelerators. Step time, efficiency and energy too."""
    from vflops.cli.terminal import console
    from vflops.cli.terminal.columns import columns, heading
    from vflops.studies.predict import predict_text

    if published:
        others: dict[str, object] = {"RUN": run, "--models": models, "--ranks": ranks}
        others |= {"--upto": upto, "--measured": measured, "--config": config, "--set": set_}
        _published([name for name, value in others.items() if value], page)
        return
    if ranks is not None and upto is not None:
        raise UsageError(f"--ranks {ranks} and --upto {upto}", hint="give one of them")
    forecast = _forecast(run, models, ranks, upto, measured, config, set_ or [])
    typer.echo(columns(forecast.given, right=[1]))
    typer.echo(f"\n{heading(predict_text.story(forecast.inputs))}")
    table = predict_text.prediction_rows(forecast.points)
    typer.echo(columns(table, right=range(len(table[0]))))
    for note in forecast.notes:
        console.say(f"· {note}", indent=2, file=sys.stdout)
    beside = predict_text.measured_rows(forecast.measured, forecast.inputs)
    if beside:
        typer.echo(f"\n{heading('measured beside predicted efficiency')}")
        typer.echo(columns(beside, right=range(1, 5)))
    typer.echo(f"\n{heading('where each mode stops paying: an efficiency of a half')}")
    typer.echo(columns(predict_text.paying_rows(forecast.modes, forecast.scales), right=[1]))
    for sentence in predict_text.ranges(forecast.modes, forecast.scales):
        console.say(f"· {sentence}", indent=2, file=sys.stdout)
    if page is None:
        console.next_step(
            f"vflops predict {_again(run, config, set_ or [])} --page predict.html", "the curves"
        )
        return
    from vflops.studies.predict.predict_page import write_page

    with console.working("drawing"):
        write_page(forecast, page)
    _drawn(page)


def _drawn(page: Path) -> None:
    from vflops.cli.terminal import console

    typer.echo(f"\npage  {console.shown(page)}")
    console.next_step(f"open {page.resolve().as_uri()}", "the curves, offline")


def _forecast(
    run: Path | None,
    models: str | None,
    ranks: str | None,
    upto: int | None,
    measured: Path | None,
    config: Path | None,
    assignments: list[str],
) -> Forecast:
    """Return all that is shown; refused where a figure is missing that the asked points need."""
    from vflops.studies.predict.inputs import MOST, load
    from vflops.studies.predict.measured_points import read_measured
    from vflops.studies.predict.predict_page import Forecast
    from vflops.studies.predict.predict_text import input_rows
    from vflops.studies.predict.scaling_model import predict as at
    from vflops.studies.predict.sweeps import exchange_lines, fitting, parallel_lines, scales_up_to

    beside = read_measured(measured) if measured else []
    base, sources, absent = _from_run(run)
    if measured and not (run or config or assignments):
        base, sources = _from_measured(beside, measured)
    inputs = load(base, config, assignments)
    own = _typed_names(config, assignments)
    sources = {name: source for name, source in sources.items() if name not in own}
    if upto is not None and not 1 <= upto <= MOST:
        raise UsageError(
            f"--upto {upto}: expected 1 to {MOST:,} accelerators", hint=f"e.g. --upto {_UPTO}"
        )
    many = _counts("--models", models) or [1]
    each, left_out = _counts("--ranks", ranks), None
    try:
        if not each:
            each, left_out = fitting(inputs, max(1, (upto or _UPTO) // max(many)))
        points = [at(inputs, m, p) for m in many for p in each]
    except UsageError as error:
        raise _explained(error, absent) from None
    asked = {point.ranks for point in points}
    most = max(upto or _UPTO, *(point.accelerators for point in points))
    scales = sorted({*scales_up_to(inputs, most), *asked})
    return Forecast(
        inputs=inputs,
        given=input_rows(inputs, sources, absent),
        points=points,
        scales=scales,
        modes=parallel_lines(inputs, scales),
        exchanges=exchange_lines(inputs, scales),
        measured=beside,
        left_out=left_out,
    )


def _explained(error: UsageError, absent: Mapping[str, str]) -> UsageError:
    """Return the same error, with the run's reason for a figure that is missing."""
    missing = error.message.partition(" is not known")[0]
    if missing not in absent:
        return error
    return UsageError(f"{error.message}; of the run: {absent[missing]}", hint=error.hint)


def _from_run(run: Path | None) -> tuple[dict[str, object], dict[str, str], dict[str, str]]:
    if run is None:
        return {}, {}, {}
    from vflops.cli.terminal import console
    from vflops.studies.predict.from_run import read_inputs

    found = read_inputs(console.read_run(run))
    return found.sections(), found.sources, found.absent


def _from_measured(
    beside: Sequence[MeasuredScale], file: Path
) -> tuple[dict[str, object], dict[str, str]]:
    """Return the figures of the first point that has any: nothing else is said."""
    own = next((each for each in beside if each.inputs and each.ranks > 1), None)
    if own is None or own.inputs is None:
        return {}, {}
    known = {name: value for name, value in own.inputs.figures().items() if value is not None}
    source = f"{file.name}: {own.series}, {own.models} × {own.ranks}"
    return own.inputs.model_dump(exclude_unset=True), dict.fromkeys(known, source)


def _typed_names(config: Path | None, assignments: list[str]) -> set[str]:
    """Return the names of what the user says, ``step.time_s``."""
    from vflops.studies.predict.inputs import typed

    return {
        f"{section}.{key}"
        for section, values in typed(config, assignments).items()
        for key in values
    }


def _published(others: list[str], page: Path | None) -> None:
    from vflops.cli.terminal import console
    from vflops.cli.terminal.columns import columns
    from vflops.studies.predict.predict_text import calibration, published_rows
    from vflops.studies.predict.published_scaling import validate

    if others:
        raise UsageError(
            f"--published and {', '.join(others)}: the published table has its own figures",
            hint="vflops predict --published",
        )
    found = validate()
    typer.echo(columns(published_rows(found), right=range(2, 6)))
    typer.echo()
    console.say(calibration(found), file=sys.stdout)
    if page is not None:
        from vflops.studies.predict.published_page import write_page

        write_page(found, page)
        _drawn(page)
        return
    console.next_step("vflops predict RUN --set link.bandwidth=1.25e9", "your own machine")


def _counts(option: str, text: str | None) -> list[int]:
    if text is None:
        return []
    try:
        found = sorted({int(word) for word in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise UsageError(f"{option} {text}: not whole numbers from 1 up", hint=f"e.g. {option} 8")
    return found


def _again(run: Path | None, config: Path | None, assignments: list[str]) -> str:
    """Return the same command, as it was typed."""
    import shlex

    parts = [str(run)] if run else []
    parts += ["--config", str(config)] if config else []
    for assignment in assignments:
        parts += ["--set", assignment]
    return shlex.join(parts)
