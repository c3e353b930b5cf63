"""The number of base models and of their ranks, from options and the nodes that a run can use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.launch.factory import launcher_class
from vflops.launch.placement import Node, defaults
from vflops.run.validate import most_copies
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import workload_settings

_COUNTS = ("train.ranks", "bagging.models", "models")
"""The settings of P and M, without the name of a workload."""


@dataclass(frozen=True)
class EnsembleShape:
    """M base models of P ranks each."""

    models: int
    ranks: int

    @property
    def assignments(self) -> list[str]:
        """The settings of this shape."""
        return [
            f"bagging.models={self.models}",
            f"models={self.models}",
            f"train.ranks={self.ranks}",
        ]


def ensemble_shape(
    requested: Settings,
    nodes: Sequence[Node],
    *,
    models: int | None = None,
    ranks: int | None = None,
    scale: int | None = None,
) -> EnsembleShape:
    """Return M and P from options, else from the settings, else the defaults for ``nodes``.

    With a ``scale``, M × P equals it (HPC AI500 V3.0, equation 5); raise if it cannot.
    """
    set_models, set_ranks = _counts_from_settings(requested)
    if models and scale is None:
        set_ranks = set_ranks or 1  # as a run of these options
    if ranks is None and set_ranks is None and scale is None:
        set_ranks = _suited_ranks(requested, nodes)
    chosen = defaults(
        nodes,
        set_models if models is None else models,
        set_ranks if ranks is None else ranks,
        scale=scale,
    )
    return EnsembleShape(*chosen)


def _suited_ranks(requested: Settings, nodes: Sequence[Node]) -> int | None:
    """Return the ranks that all batches suit if those are fewer than a node has slots."""
    sections = workload_settings(requested)
    known = [most_copies(requested.profile, workload(k), v.train) for k, v in sections.items()]
    most = min((copies for copies in known if copies is not None), default=None)
    return most if most is not None and most < min(node.slots for node in nodes) else None


def suite_shape(settings: Settings) -> EnsembleShape:
    """Return the shape of the largest ensemble of a suite, whose workloads run one by one."""
    sections = [
        section
        for name, section in settings.workloads.items()
        if workload(name).can_be_bagged and not workload(name).is_search
    ]
    return EnsembleShape(
        max((section["models"] or settings.bagging.models for section in sections), default=1),
        max((section["train"]["ranks"] for section in sections), default=1),
    )


def layout_assignments(requested: Settings, nodes: Sequence[Node]) -> list[str]:
    """Return the setting with which models on a scheduler share nodes, unless it is given."""
    launch = requested.launch
    if launcher_class(launch.on).is_this_machine or launch.ranks_per_node is not None:
        return []
    return [f"launch.ranks_per_node={min(node.slots for node in nodes)}"]


def check_scalable(requested: Settings, scale: int, assignments: Sequence[str]) -> None:
    """Raise unless all workloads can be ensembles, and ``--set`` leaves M and P to the scale."""
    for assignment in assignments:
        if _without_workload(assignment.partition("=")[0].strip(), requested) in _COUNTS:
            raise UsageError(
                f"--scale {scale} conflicts with --set {assignment}",
                hint="use --models M or --ranks P with --scale",
            )
    for name in requested.workloads:
        spec = workload(name)
        if spec.is_search or not spec.can_be_bagged:
            alone = len(requested.workloads) == 1
            kind = "is a search" if spec.is_search else "cannot be an ensemble"
            option = "use --workers W" if spec.is_search else "use --ranks P"
            raise UsageError(
                f"{name} {kind}: --scale {scale} does not apply",
                hint=option if alone else f"name a workload: image-classification --scale {scale}",
            )


def _without_workload(name: str, settings: Settings) -> str:
    """Return the name of a setting without ``workloads.`` and the name of a workload."""
    first, _, rest = name.removeprefix("workloads.").partition(".")
    return rest if first in settings.workloads else name


def _counts_from_settings(settings: Settings) -> tuple[int | None, int | None]:
    """Return M and P from a file or ``--set``; None stands for the default of 1.

    M is 1, not None, if a workload cannot be bagged.
    """
    can_bag = all(workload(name).can_be_bagged for name in settings.workloads)
    models = settings.bagging.models
    ranks = max(section["train"]["ranks"] for section in settings.workloads.values())
    return models if models > 1 or not can_bag else None, ranks if ranks > 1 else None
