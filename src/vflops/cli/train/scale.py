"""``vflops scale``: the papers' scaling experiments with one workload."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflops.cli import options
from vflops.cli.train.paper import (
    check_paper_options,
    data_assignments,
    paper_study,
    run_study,
)
from vflops.cli.train.scale_output import run_experiment
from vflops.cli.typed_values import parse_counts
from vflops.errors import UsageError

if TYPE_CHECKING:
    from vflops.config.settings import Settings


class PaperName(StrEnum):
    """The papers whose figures are known."""

    V3 = "v3"
    V2 = "v2"
    AIPERF = "aiperf"


class Kind(StrEnum):
    """The kinds of experiments."""

    WEAK = "weak"
    BAGGING_VS_DATA = "bagging-vs-data"
    TRADE_OFF = "trade-off"
    WORKERS = "workers"
    SEARCHES = "searches"
    OPTIMISATIONS = "optimisations"
    DATA_PARALLEL = "data-parallel"
    PRECISIONS = "precisions"
    KERNELS = "kernels"
    FRAMEWORKS = "frameworks"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(scale)


def scale(
    workload: Annotated[
        str | None,
        typer.Argument(help="Workload to run, see `vflops list`; with --paper, by default all."),
    ] = None,
    paper: Annotated[
        PaperName | None,
        typer.Option(
            help="All figures of a paper on one page: v3 (HPC AI500 V3.0), v2 (HPC AI500 V2.0) or"
            " aiperf."
        ),
    ] = None,
    kind: Annotated[
        Kind | None,
        typer.Option(
            help="weak (default): M grows; bagging-vs-data: M × P and 1 × MP; trade-off: M × P at"
            " one scale; optimisations: mixed precision, compression as M grows; data-parallel: the"
            " same as P grows; precisions: speed and quality as P grows; kernels: kernel time as P"
            " grows; frameworks: time, speed, quality and memory of each framework; workers"
            " (default of a search): the number of workers grows; searches:"
            " searches with several seeds against replays of the first."
        ),
    ] = None,
    scales: Annotated[
        str | None,
        typer.Option(
            help="Scales, e.g. 1,2,4; by default all powers of two that fit. In a trade-off, the"
            " numbers of models; by default all that divide --scale."
        ),
    ] = None,
    scale: Annotated[
        int | None, typer.Option(help="Scale of a trade-off; by default all slots.")
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            help="Workers of a search, e.g. 1,2,4; by default all powers of two that fit. With"
            " --kind searches, one number."
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Number of searches, and of replays of the first; by default 5.", min=2),
    ] = None,
    error: Annotated[
        float | None,
        typer.Option(
            help="Target error of searches; by default search.error. Another value evaluates"
            " complete runs again."
        ),
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(help="Number of ranks per model or worker.", min=1)
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            help="An optimisation to compare, NAME=key=value,key=value; repeatable; the first one"
            " is the baseline."
        ),
    ] = None,
    precisions: Annotated[
        str | None, typer.Option(help="Precisions to compare, e.g. fp32,mixed-bf16.")
    ] = None,
    frameworks: Annotated[
        str | None,
        typer.Option(help="Frameworks to compare, e.g. pytorch,jax; by default all that work."),
    ] = None,
    for_: Annotated[
        str | None, typer.Option("--for", help="Duration of each search: 90s, 30m, 1h.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="Your own data, packed: WORKLOAD=DIR, or DIR; repeatable."),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(help="With --paper: an earlier run from which to estimate the time."),
    ] = None,
    profile: options.Profile = None,
    on: options.On = None,
    nodes: options.Nodes = None,
    rehearse: options.Rehearse = False,
    container: options.Container = None,
    repeat: Annotated[
        int | None, typer.Option(help="Number of trainings per point, each with the next seed.")
    ] = None,
    seed: options.Seed = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the experiment; an existing one is resumed."),
    ] = None,
    config: options.Config = None,
    set_: options.Set = None,
    quiet: options.Quiet = False,
) -> None:
    """Train or search at several scales. Draws speed and quality over scale."""
    given: dict[str, object] = {
        "--scales": scales,
        "--scale": scale,
        "--workers": workers,
        "--seeds": seeds,
        "--error": error,
        "--variant": " ".join(variant) if variant else None,
        "--precisions": precisions,
        "--frameworks": frameworks,
    }
    flags: dict[str, object] = {
        "launch.on": on,
        "launch.nodes": nodes,
        "launch.ranks_per_node": ranks if rehearse else None,
        "launch.container": container,
        "repeat": repeat,
    }
    assignments = [f"{key}={value}" for key, value in flags.items() if value is not None]
    if rehearse:
        assignments = ["micro.benchmarks=[]", *assignments]
    assignments = [*options.rehearsal_settings(rehearse=rehearse), *assignments]
    load = partial(_settings, seed=seed)
    if paper is not None:
        check_paper_options(paper, {"--kind": kind, **given})
        assignments += set_ or []
        study = paper_study(
            paper, workload, out, profile, assignments, data or [], config, load, ranks, for_
        )
        run_study(study, like, quiet=quiet)
        return
    from vflops.studies.scale.request import Request, chosen_kind, split_sharing

    if workload is None:
        raise UsageError(
            "vflops scale needs a workload or a paper",
            hint="vflops scale image-classification, or vflops scale --paper v3",
        )
    if like is not None:
        raise UsageError("--like applies with --paper only", hint="leave it out")
    given |= {"--ranks": ranks, "--for": for_, "--repeat": repeat}
    chosen = chosen_kind(kind.value if kind else None, workload, given)
    common, sharing = split_sharing(set_ or [], workload)
    search = options.search_flags(workload, None, for_)
    assignments += [f"{key}={value}" for key, value in search.items() if value is not None]
    assignments += data_assignments(data or [], [workload])
    settings = load(
        profile,
        config=config,
        assignments=["micro.benchmarks=[]", *common, *assignments],
        workloads=workload,
    )
    request = Request(
        kind=chosen,
        scales=None if scales is None else parse_counts("--scales", scales, "1,2"),
        scale=None if scale is None else parse_counts("--scale", str(scale), "2")[0],
        workers=None if workers is None else parse_counts("--workers", workers, "1,2"),
        seeds=seeds,
        error=error,
        ranks=ranks,
        variant=variant,
        precisions=precisions,
        frameworks=frameworks,
        sharing=sharing,
    )
    folder = out or Path("runs") / f"scale-{chosen}-{workload}"
    run_experiment(request.experiment(folder, settings), quiet=quiet)


def _settings(
    profile: str | None,
    seed: int | None,
    config: Path | None,
    assignments: list[str],
    *,
    workloads: str | None = None,
) -> Settings:
    """Return the settings of an experiment; raise UsageError if its nodes serve only one run."""
    from vflops.run.continued import require_lasting_nodes

    settings = options.settings(
        profile, seed, config, assignments, workloads=workloads, keep_batch_per_rank=True
    )
    require_lasting_nodes(settings)
    return settings
