"""Options that several commands share, each defined once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vflops.config.settings import Settings

Run = Annotated[
    Path | None, typer.Argument(help="A run folder; the newest under runs/ when left out.")
]
Out = Annotated[Path, typer.Option(help="Folder that run folders are made in.")]
Profile = Annotated[
    str | None,
    typer.Option(help="tiny, laptop, gpu or reference; by default the one that suits the machine."),
]
Seed = Annotated[int | None, typer.Option(help="Seed of all random data.")]
Config = Annotated[Path | None, typer.Option(help="TOML file with settings.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="One setting, e.g. micro.budget_s=20; repeatable.")
]
On = Annotated[
    str | None,
    typer.Option(
        help="Where they train: local, slurm; pbs, lsf, flux were not seen on a real site yet."
    ),
]
Container = Annotated[
    str | None,
    typer.Option(help="Image that a scheduler's jobs run in; site.toml's, if any, by default."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the result only, no progress.")]

MetricsFile = Annotated[
    Path | None,
    typer.Option(help="Keep a file for Prometheus' node exporter, *.prom, while the run goes on."),
]


def settings(
    profile: str | None,
    seed: int | None,
    config: Path | None,
    assignments: list[str],
    *,
    workloads: str | None = None,
) -> Settings:
    """Return the profile changed by the file, then ``--set``, then ``--seed``.

    ``workloads`` is one of them by its name, ``suite`` for all, or None for none.
    """
    from vflops.config.profiles import for_all, for_one
    from vflops.workloads.contract.registry import suite, workload
    from vflops.workloads.contract.run_settings import load
    from vflops.workloads.contract.run_settings import profile as find

    name = profile or default_profile()
    names = suite() if workloads == "suite" else [workload(workloads).name] if workloads else []
    chosen = for_all(find(name, names)) if workloads == "suite" else find(name, names)
    extra = [] if seed is None else [f"seed={seed}"]
    loaded = load(chosen, config, [*assignments, *extra])
    return loaded if workloads in (None, "suite") else for_one(loaded)


def search_flags(workload: str | None, workers: int | None, for_: str | None) -> dict[str, object]:
    """Return the settings that ``--workers`` and ``--for`` give; refused for what is no search."""
    from vflops.cli.durations import seconds
    from vflops.errors import UsageError
    from vflops.workloads.contract.registry import workload as find

    given = {"--workers": workers, "--for": for_}
    named = [f"{flag} {value}" for flag, value in given.items() if value is not None]
    if not named:
        return {}
    if workload is None or "search" not in find(workload).settings.model_fields:
        what = f"{workload} is none" if workload else "no workload is named"
        raise UsageError(
            f"{' '.join(named)} is for a search, and {what}",
            hint=f"vflops run automl {' '.join(named)}",
        )
    return {
        "search.workers": workers,
        "search.duration_s": seconds(for_) if for_ is not None else None,
    }


def default_profile() -> str:
    """Return ``gpu`` where torch sees an accelerator, else ``laptop``."""
    import torch

    return "gpu" if torch.accelerator.is_available() else "laptop"
