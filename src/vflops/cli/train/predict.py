"""``vflops predict``: how training would scale, from a run or from given figures."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from vflops.cli import options
from vflops.cli.typed_values import parse_counts
from vflops.errors import UsageError

_UPTO = 1024
"""Default of --upto; repeats ``forecasting``'s, because importing that would slow down --help."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(predict)


def predict(
    run: Annotated[Path | None, typer.Argument(help="A run folder to take figures from.")] = None,
    models: Annotated[
        str | None, typer.Option(help="Numbers of models M, e.g. 1,8; by default 1.")
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(help="Numbers of ranks P per model, e.g. 8,16,64.")
    ] = None,
    upto: Annotated[
        int | None,
        typer.Option(help=f"Double P up to this number of accelerators; by default {_UPTO}."),
    ] = None,
    page: Annotated[Path | None, typer.Option(help="HTML page to write, with the curves.")] = None,
    measured: Annotated[
        Path | None,
        typer.Option(help="scale.json or links.json with measurements to compare with."),
    ] = None,
    published: Annotated[
        bool,
        typer.Option(
            "--published", help="Compare predictions with the published scaling of HPC AI500."
        ),
    ] = False,
    config: options.Config = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A figure or choice, e.g. link.bandwidth=1.25e9; repeatable."),
    ] = None,
) -> None:
    """Predict speed and score of M × P accelerators. Also step time, efficiency and energy."""
    from vflops.cli.terminal import console
    from vflops.cli.terminal.columns import columns, heading
    from vflops.studies.predict import predict_text
    from vflops.studies.predict.forecasting import make_forecast

    if published:
        other_options: dict[str, object] = {"RUN": run, "--models": models, "--ranks": ranks}
        other_options |= {"--upto": upto, "--measured": measured, "--config": config, "--set": set_}
        _compare_published([name for name, value in other_options.items() if value], page)
        return
    if ranks is not None and upto is not None:
        raise UsageError(
            f"--ranks {ranks} and --upto {upto} exclude each other", hint="give one of them"
        )
    forecast = make_forecast(
        console.read_run(run) if run else None,
        parse_counts("--models", models, "8") if models is not None else [1],
        parse_counts("--ranks", ranks, "8") if ranks is not None else [],
        upto,
        measured,
        config,
        set_ or [],
    )
    typer.echo(columns(forecast.given, right=[1]))
    typer.echo(f"\n{heading(predict_text.describe_training(forecast.inputs))}")
    table = predict_text.prediction_rows(forecast.points)
    typer.echo(columns(table, right=range(len(table[0]))))
    for note in forecast.notes:
        console.say(f"· {note}", indent=2, file=sys.stdout)
    measured_table = predict_text.measured_rows(forecast.measured, forecast.inputs)
    if measured_table:
        typer.echo(f"\n{heading('measured and predicted efficiency')}")
        typer.echo(columns(measured_table, right=range(1, 5)))
    typer.echo(f"\n{heading('most accelerators at which each mode is at least 50 % efficient')}")
    typer.echo(columns(predict_text.paying_rows(forecast.modes, forecast.scales), right=[1]))
    for sentence in predict_text.most_efficient_sentences(forecast.modes, forecast.scales):
        console.say(f"· {sentence}", indent=2, file=sys.stdout)
    if page is None:
        given: dict[str, object] = {"--models": models, "--ranks": ranks, "--upto": upto}
        given |= {"--measured": measured, "--config": config}
        arguments = _arguments(run, given, set_ or [])
        console.next_step(
            f"vflops predict {arguments} --page predict.html",
            "draw the curves",
        )
        return
    from vflops.studies.predict.predict_page import write_page

    with console.working("drawing"):
        write_page(forecast, page)
    _print_page(page)


def _print_page(page: Path) -> None:
    from vflops.cli.terminal import console

    typer.echo(f"\npage  {console.shell_path(page)}")
    console.open_page(page, "the curves")


def _compare_published(other_options: list[str], page: Path | None) -> None:
    from vflops.cli.terminal import console
    from vflops.cli.terminal.columns import columns
    from vflops.studies.predict.predict_text import calibration, published_rows
    from vflops.studies.predict.published_scaling import validate

    if other_options:
        raise UsageError(
            f"--published cannot be combined with {', '.join(other_options)}",
            hint="vflops predict --published",
        )
    validation = validate()
    typer.echo(columns(published_rows(validation), right=range(2, 6)))
    typer.echo()
    console.say(calibration(validation), file=sys.stdout)
    if page is not None:
        from vflops.studies.predict.published_page import write_page

        write_page(validation, page)
        _print_page(page)
        return
    console.next_step("vflops predict RUN --set link.bandwidth=1.25e9", "for your own machine")


def _arguments(run: Path | None, given: Mapping[str, object], assignments: Sequence[str]) -> str:
    """Return the arguments of this command as typed, quoted for a shell."""
    import shlex

    parts = [str(run)] if run else []
    for option, value in given.items():
        parts += [option, str(value)] if value is not None else []
    for assignment in assignments:
        parts += ["--set", assignment]
    return shlex.join(parts)
