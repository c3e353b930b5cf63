"""``vflops scale``: the papers' scaling experiments with one workload."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vflops.cli import options
from vflops.cli.train.scale_output import run_experiments
from vflops.cli.typed_values import parse_counts
from vflops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vflops.config.settings import Settings
    from vflops.studies.scale.experiment import Experiment
    from vflops.studies.scale.scale_result import SameBatch, Size, Variant


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


class Batch(StrEnum):
    """What keeps its batch size when ranks are added."""

    RANK = "rank"
    MODEL = "model"


_OPTIONS = {
    Kind.WEAK: ("--scales", "--ranks", "--batch", "--repeat"),
    Kind.BAGGING_VS_DATA: ("--scales", "--ranks", "--batch", "--repeat"),
    Kind.TRADE_OFF: ("--scale", "--scales", "--batch", "--repeat"),
    Kind.WORKERS: ("--workers", "--ranks", "--for"),
    Kind.SEARCHES: ("--seeds", "--error", "--workers", "--ranks", "--for"),
    Kind.OPTIMISATIONS: ("--scales", "--variant", "--ranks", "--batch", "--repeat"),
    Kind.DATA_PARALLEL: ("--scales", "--variant", "--batch", "--repeat"),
    Kind.PRECISIONS: ("--scales", "--precisions", "--batch", "--repeat"),
    Kind.KERNELS: ("--scales", "--batch", "--repeat"),
    Kind.FRAMEWORKS: ("--scales", "--frameworks", "--ranks", "--batch", "--repeat"),
}
"""The options of each kind of experiment; the first one sets the points."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(scale)


def scale(
    workload: Annotated[
        str,
        typer.Argument(help="Workload to run, see `vflops list`; `suite` compares its trainings."),
    ],
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
    batch: Annotated[
        Batch | None,
        typer.Option(
            help="What keeps its batch size when a model gets more ranks; by default rank."
        ),
    ] = None,
    profile: options.Profile = None,
    on: options.On = None,
    nodes: options.Nodes = None,
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
    if kind is None and (variant or precisions is not None):
        kind = Kind.OPTIMISATIONS if variant else Kind.PRECISIONS
    elif kind is None and frameworks is not None:
        kind = Kind.FRAMEWORKS
    elif kind is None and (seeds is not None or error is not None):
        kind = Kind.SEARCHES
    names = _trainings_of_suite() if workload == "suite" else [workload]
    chosen = _check_kind(kind, names[0])
    if chosen is Kind.FRAMEWORKS:
        names = _with_frameworks(names)
    points = {"--scales": scales, "--scale": scale, "--workers": workers, "--seeds": seeds}
    given: dict[str, object] = {
        **points,
        "--ranks": ranks,
        "--for": for_,
        "--batch": batch,
        "--repeat": repeat,
    }
    given["--error"] = error
    given |= {"--variant": " ".join(variant) if variant else None, "--precisions": precisions}
    given["--frameworks"] = frameworks
    _check_options(chosen, given)
    flags: dict[str, object] = {
        "launch.on": on,
        "launch.nodes": nodes,
        "launch.container": container,
        "repeat": repeat,
    }
    flags |= options.search_flags(names[0], None, for_)
    if chosen in (Kind.WORKERS, Kind.SEARCHES):  # as in vflops run: a batch per rank follows it
        flags["train.ranks"] = ranks
    assignments = [f"{key}={value}" for key, value in flags.items() if value is not None]
    folder = out or Path("runs") / f"scale-{chosen.value}-{workload}"
    experiments = []
    for name in names:
        others = tuple(f"{other}." for other in names if other != name)
        own = [text for text in set_ or [] if not _key(text).startswith(others)]
        common_assignments, sharing = _split_sharing(own, name)
        settings = options.settings(
            profile,
            seed,
            config,
            ["micro.benchmarks=[]", *common_assignments, *assignments],
            workloads=name,
        )
        choice = _Choice(
            kind=chosen,
            points=points[_OPTIONS[chosen][0]],
            models=scales if chosen is Kind.TRADE_OFF else None,
            ranks=ranks,
            workers=workers,
            error=error,
            batch=batch.value if batch else "rank",
            variants=variant,
            precisions=precisions,
            frameworks=frameworks,
            sharing=sharing,
        )
        own_folder = folder / name if workload == "suite" else folder
        experiments.append(_experiment(own_folder, settings, choice))
    run_experiments(experiments, folder, quiet=quiet)


@dataclass(frozen=True)
class _Choice:
    """The options of an experiment, as the user gave them."""

    kind: Kind
    points: object
    """The value of the option that sets the points."""
    models: str | None
    """The numbers of models of a trade-off; None for all."""
    ranks: int | None
    workers: str | None
    error: float | None
    """The target error of searches."""
    batch: SameBatch
    variants: list[str] | None
    precisions: str | None
    frameworks: str | None
    sharing: dict[str, str]


def _experiment(folder: Path, settings: Settings, choice: _Choice) -> Experiment:
    """Return the experiment; raise if a point cannot be run."""
    from vflops.studies.scale.axis import axis_of
    from vflops.studies.scale.experiment import Experiment, sizes

    ((name, section),) = settings.workloads.items()
    kind, points = choice.kind, choice.points
    variants = _variants(choice, section["train"])
    ranks = choice.ranks or section["train"]["ranks"] if "--ranks" in _OPTIONS[kind] else 1
    option = _OPTIONS[kind][0]
    if kind in (Kind.OPTIMISATIONS, Kind.FRAMEWORKS):
        points = points or "1"
    if kind is Kind.OPTIMISATIONS and ranks == 1 and choice.ranks is None:
        # A single rank has no communication.
        largest = max(parse_counts(option, str(points), "2"))
        ranks = max(_capacity(settings, 1, "--ranks") // largest, 1)
    axis = axis_of(kind.value, choice.batch, variants, choice.sharing, choice.error)
    if kind is Kind.SEARCHES:
        point_sizes = _variation_sizes(choice, ranks, section["search"]["workers"])
        return Experiment.create(folder, name, axis, point_sizes, settings)
    scales = _parse_scales(option, points, ranks, settings)
    models = parse_counts("--scales", choice.models, "1,2") if choice.models is not None else ()
    point_sizes = sizes(choice.kind.value, scales, ranks, variants, models)
    if choice.sharing and all(size.ranks == 1 for size in point_sizes):
        key, value = next(iter(choice.sharing.items()))
        raise UsageError(
            f"{key}={value} needs ranks that share a model, but every point has one rank",
            hint=f"use {'--ranks 2' if '--ranks' in _OPTIONS[kind] else option + ' 1,2'}",
        )
    return Experiment.create(folder, name, axis, point_sizes, settings)


def _variation_sizes(choice: _Choice, ranks: int, workers: int) -> list[Size]:
    """Return the searches and replays of an experiment; raise if an option is not valid."""
    from vflops.studies.scale.search_variation import DEFAULT_SEEDS, variation_sizes

    if choice.error is not None and not 0 < choice.error < 1:
        raise UsageError(
            f"--error {choice.error:g}: expected a share between 0 and 1", hint="e.g. --error 0.2"
        )
    if choice.workers is not None:
        numbers = parse_counts("--workers", choice.workers, "2")
        if len(numbers) > 1:
            raise UsageError(
                f"--workers {choice.workers}: all searches of --kind searches have one number of"
                " workers",
                hint=f"e.g. --workers {numbers[-1]}",
            )
        (workers,) = numbers
    return variation_sizes(int(str(choice.points or DEFAULT_SEEDS)), workers, ranks)


def _trainings_of_suite() -> list[str]:
    """Return the workloads of the suite that are not searches."""
    from vflops.workloads.contract.registry import suite
    from vflops.workloads.contract.registry import workload as find_workload

    return [name for name in suite() if not find_workload(name).is_search]


def _split_sharing(assignments: list[str], workload: str) -> tuple[list[str], dict[str, str]]:
    """Split assignments into those for all points and those for points with several ranks."""
    common, sharing = [], {}
    for assignment in assignments:
        _, equals, value = assignment.partition("=")
        key = _key(assignment).removeprefix(f"{workload}.")
        section = key.removeprefix("train.").partition(".")[0]
        if equals and section in ("parallel", "communication"):
            sharing[key] = value.strip()
        else:
            common.append(assignment)
    return common, sharing


def _key(assignment: str) -> str:
    """Return the setting that is assigned, with its workload if that is named."""
    return assignment.partition("=")[0].strip().removeprefix("workloads.")


def _with_frameworks(names: list[str]) -> list[str]:
    """Return the workloads that several frameworks can train; raise if there are none."""
    from vflops.workloads.contract.registry import workload as find_workload

    fitting = [name for name in names if len(find_workload(name).frameworks) > 1]
    if not fitting:
        raise UsageError(
            f"--kind frameworks does not apply to {names[0]}, which is trained with PyTorch only",
            hint="vflops scale image-classification --kind frameworks, or another --kind",
        )
    return fitting


def _check_kind(kind: Kind | None, workload: str) -> Kind:
    """Return the kind of the experiment; raise if it does not suit the workload."""
    from vflops.workloads.contract.registry import workload as find_workload

    is_search = find_workload(workload).is_search
    if kind is not None and (kind in (Kind.WORKERS, Kind.SEARCHES)) != is_search:
        raise UsageError(
            f"--kind {kind.value} does not apply to {workload}, which is "
            f"{'a' if is_search else 'not a'} search",
            hint="omit --kind" if is_search else "vflops scale automl, or another --kind",
        )
    return kind or (Kind.WORKERS if is_search else Kind.WEAK)


def _variants(choice: _Choice, train: Mapping[str, Any]) -> tuple[Variant, ...]:
    """Return the variants to compare at every size; most experiments have none."""
    from vflops.studies.scale import variant_choice as variants
    from vflops.studies.scale.framework_comparison import framework_variants

    kind, given, precisions = choice.kind, choice.variants, choice.precisions
    if kind is Kind.FRAMEWORKS:
        return framework_variants(choice.frameworks)
    if kind in (Kind.OPTIMISATIONS, Kind.DATA_PARALLEL):
        return (
            variants.parse_variants(given) if given else variants.optimisations(train["precision"])
        )
    if kind is Kind.PRECISIONS:
        if precisions is None:
            return variants.default_precisions(train["precision"])
        return variants.precisions([name.strip() for name in precisions.split(",")])
    return ()


def _check_options(kind: Kind, given: Mapping[str, object]) -> None:
    """Raise if options of other experiments are given."""
    for option, value in given.items():
        if value is not None and option not in _OPTIONS[kind]:
            raise UsageError(
                f"{option} {value if value != '' else repr(value)} does not apply to "
                f"--kind {kind.value}",
                hint=f"its options are {', '.join(_OPTIONS[kind])}",
            )


def _parse_scales(option: str, given: object, ranks: int, settings: Settings) -> list[int]:
    """Return the given scales in ascending order, or all powers of two that fit."""
    if given is not None:
        return parse_counts(option, str(given), "2")
    largest = _capacity(settings, ranks, option)
    if option == "--scale":
        return [largest]
    return [1 << power for power in range(largest.bit_length())] or [1]


def _capacity(settings: Settings, ranks: int, option: str) -> int:
    """Return how many jobs of ``ranks`` ranks fit on this machine or in the current allocation."""
    from vflops.launch.factory import launcher_class
    from vflops.launch.nodes import usable_nodes
    from vflops.launch.placement import capacity
    from vflops.studies.scale.scale_result import Size
    from vflops.studies.scale.shared_nodes import ranks_per_node

    launch = settings.launch
    if not launcher_class(launch.on).nodes_reserved():
        raise UsageError(
            f"{option} is needed with launch.on = {launch.on}: the size of the allocation is not"
            " known",
            hint=f"add {option} …",
        )
    (section,) = settings.workloads.values()
    device = section["train"]["device"]
    shared = ranks_per_node(launch, device, [Size(1, ranks)])
    nodes = usable_nodes(launch.model_copy(update={"ranks_per_node": shared}), device, ranks)
    return capacity(nodes, ranks)
