"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vflops.config.settings import Settings
    from vflops.run.run_size import RunSize

Run = Annotated[
    Path | None, typer.Argument(help="A run folder; by default the newest under runs/.")
]
Workload = Annotated[
    str | None,
    typer.Argument(help="Workload to run, see `vflops list`; by default all of them."),
]
Data = Annotated[Path | None, typer.Option(help="Your own data; by default synthetic data.")]
Models = Annotated[
    int | None,
    typer.Option(help="Number of base models of an ensemble, M, trained side by side."),
]
Ranks = Annotated[
    int | None, typer.Option(help="Number of ranks per model, P, one accelerator each.")
]
SearchWorkers = Annotated[
    int | None, typer.Option(help="Number of workers of a search, each with --ranks ranks.")
]
For = Annotated[
    str | None, typer.Option("--for", help="Duration of a search: 90s, 30m, 1h, 1h30m.")
]
Waves = Annotated[
    bool, typer.Option("--waves", help="Train models that do not fit at once in several waves.")
]
Twins = Annotated[
    bool,
    typer.Option("--twins", help="Train each model twice, to find nodes with differing results."),
]
Repeat = Annotated[
    int | None,
    typer.Option(
        help="Number of training runs, each with the next seed, to see how much they vary."
    ),
]
Kernels = Annotated[bool, typer.Option("--kernels", help="Profile a few steps by kind of kernel.")]
Challenge = Annotated[
    Path | None,
    typer.Option(
        help="A challenge of `vflops challenge`, from which all seeds follow; --seed selects"
        " one of its runs."
    ),
]
Out = Annotated[Path, typer.Option(help="Folder in which run folders are created.")]
Profile = Annotated[
    str | None,
    typer.Option(
        help="tiny, laptop, gpu, reference or, for automl, aiperf; by default gpu with an "
        "accelerator, else laptop."
    ),
]
Framework = Annotated[
    str | None,
    typer.Option(help="pytorch, jax, tensorflow or mindspore, for image classification."),
]
Seed = Annotated[int | None, typer.Option(help="Random seed.")]
Config = Annotated[Path | None, typer.Option(help="TOML file with settings.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="A setting, e.g. micro.budget_s=20; repeatable.")
]
On = Annotated[
    str | None,
    typer.Option(help="Where jobs run: local, slurm, or join: on nodes that vflops join adds."),
]
Nodes = Annotated[int | None, typer.Option(help="Number of nodes of the scheduler to use.", min=1)]
Rehearse = Annotated[
    bool,
    typer.Option(
        "--rehearse",
        help="Try the layout: ranks share accelerators or cores, and --nodes of this machine are"
        " acted out. Without a score.",
    ),
]
Container = Annotated[
    str | None,
    typer.Option(
        help="Container image for the jobs of a scheduler; by default that of site.toml, if any."
    ),
]
Scale = Annotated[
    int | None,
    typer.Option(help="Slots of all models, M × P; by default P fills a node, and M = scale / P."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only the result, no progress.")]

AllowCommand = Annotated[
    bool,
    typer.Option(
        "--allow-command", help="Allow the programs that the run names, if it is not your own."
    ),
]

WaitQuiet = Annotated[
    bool,
    typer.Option(
        "--wait-quiet", help="Wait until other programs use at most 10 % of this machine's CPUs."
    ),
]
WaitLimit = Annotated[
    str | None, typer.Option(help="The longest time of --wait-quiet: 90s, 30m, 1h.")
]

MetricsFile = Annotated[
    Path | None,
    typer.Option(help="A *.prom file for Prometheus' node exporter, updated during the run."),
]


def settings(
    profile: str | None,
    seed: int | None,
    config: Path | None,
    assignments: list[str],
    *,
    workloads: str | Sequence[str] | None = None,
    keep_batch_per_rank: bool = False,
) -> Settings:
    """Return the settings of a profile, changed by the file, then ``--set``, then ``--seed``.

    ``workloads`` is the name of one workload, ``suite`` for all of them, several names, or None.
    ``keep_batch_per_rank`` is for experiments, whose points have different numbers of ranks.
    """
    from vflops.config.profiles import for_single_workload, for_suite
    from vflops.launch.factory import runs_here
    from vflops.machine.system.cpu_share import available_cpus
    from vflops.workloads.contract.registry import suite, workload
    from vflops.workloads.contract.run_settings import load
    from vflops.workloads.contract.run_settings import profile as find

    name = profile or default_profile(config, assignments)
    if workloads == "suite":
        names = suite()
    else:
        listed = [workloads] if isinstance(workloads, str) else workloads or ()
        names = [workload(each).name for each in listed]
    chosen_profile = find(name, names)
    if workloads == "suite":
        chosen_profile = for_suite(chosen_profile, available_cpus())
    seed_assignment = [] if seed is None else [f"seed={seed}"]
    loaded = load(
        chosen_profile,
        config,
        [*assignments, *seed_assignment],
        keep_batch_per_rank=keep_batch_per_rank,
    )
    is_single = isinstance(workloads, str) and workloads != "suite"
    return for_single_workload(loaded, here=runs_here(loaded.launch.on)) if is_single else loaded


def sized_settings(
    profile: str | None,
    seed: int | None,
    config: Path | None,
    assignments: list[str],
    *,
    workloads: str,
    scale: int | None = None,
    models: int | None = None,
    ranks: int | None = None,
    slots: int | None = None,
) -> tuple[Settings, RunSize]:
    """Return the settings of a run with M and P as they fit the nodes, and these sizes.

    ``models`` and ``ranks`` are options that have to make the ``scale``, if there is one; ``slots``
    are those of ``launch.nodes`` nodes that are not known here.
    """
    from vflops.config.settings import given_settings
    from vflops.errors import UsageError
    from vflops.run.run_size import check_scalable, size_run

    if slots is not None:  # the nodes cannot be queried
        profile = profile or default_profile()
    try:
        requested = settings(profile, seed, config, assignments, workloads=workloads)
    except UsageError:
        if ranks is not None and scale is None and slots is None:
            _check_ranks(ranks, profile, seed, config, assignments, workloads)
        raise
    if scale is not None:
        check_scalable(requested, scale, assignments)
    given = given_settings(config, assignments)
    size = size_run(requested, given, scale=scale, models=models, ranks=ranks, slots=slots)
    if not size.assignments:
        return requested, size
    changed = [*assignments, *size.assignments]
    return settings(requested.profile, seed, config, changed, workloads=workloads), size


def _check_ranks(
    ranks: int,
    profile: str | None,
    seed: int | None,
    config: Path | None,
    assignments: list[str],
    workloads: str,
) -> None:
    """Raise if this machine takes fewer ranks, which no change of the other settings mends."""
    from vflops.errors import UsageError
    from vflops.launch.factory import runs_here
    from vflops.run.validate import check_ranks
    from vflops.workloads.contract.run_settings import workload_settings

    others = [item for item in assignments if not item.startswith("train.ranks=")]
    try:
        base = settings(profile, seed, config, others, workloads=workloads)
    except UsageError:  # such as a mode that needs several ranks
        return
    if runs_here(base.launch.on) and not base.launch.rehearse:
        for section in workload_settings(base).values():
            check_ranks(section.train, ranks, base.launch)


def rehearsal_settings(*, rehearse: bool) -> list[str]:
    """Return the setting of ``--rehearse``."""
    return ["launch.rehearse=true"] if rehearse else []


def framework_flags(workload: str | None, framework: str | None) -> dict[str, object]:
    """Return the setting of ``--framework``; raise if it cannot train the workload."""
    from vflops.workloads.contract.registry import suite
    from vflops.workloads.contract.registry import workload as find
    from vflops.workloads.contract.spec import check_framework

    for name in [workload] if workload else suite():
        if framework is not None:
            check_framework(find(name), framework)
    return {"train.framework": framework}


def search_flags(workload: str | None, workers: int | None, for_: str | None) -> dict[str, object]:
    """Return the settings of ``--workers`` and ``--for``; raise if the workload is not a search."""
    from vflops.cli.typed_values import parse_duration
    from vflops.errors import UsageError
    from vflops.workloads.contract.registry import workload as find

    flags = {"--workers": workers, "--for": for_}
    used_flags = [f"{flag} {value}" for flag, value in flags.items() if value is not None]
    if not used_flags:
        return {}
    if workload is None or not find(workload).is_search:
        reason = f"{workload} is not a search" if workload else "no workload is given"
        raise UsageError(
            f"{' '.join(used_flags)} only applies to a search, but {reason}",
            hint=f"vflops run automl {' '.join(used_flags)}",
        )
    return {
        "search.workers": workers,
        "search.duration_s": parse_duration(for_) if for_ is not None else None,
    }


def default_profile(config: Path | None = None, assignments: Sequence[str] = ()) -> str:
    """Return ``gpu`` if the machine or the nodes that jobs run on have accelerators.

    Otherwise it is ``laptop``. GPUs that torch does not see are an error.
    """
    from vflops.config.settings import launch_settings
    from vflops.launch.nodes import known_nodes

    nodes = known_nodes(launch_settings(config, assignments), "auto")
    return "gpu" if any(node.accelerated for node in nodes) else "laptop"
