"""The number of models and ranks of a run, from its options and the nodes that it can use."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from vflops.config.frameworks import FRAMEWORKS
from vflops.config.settings import Settings
from vflops.config.training import EIGHT_BIT_PRECISIONS
from vflops.errors import UsageError
from vflops.launch.factory import launcher_class
from vflops.launch.nodes import known_nodes
from vflops.launch.placement import Plan, plan
from vflops.launch.sizing import Asked, Shape, shape
from vflops.run.validate import most_copies
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import workload_settings
from vflops.workloads.contract.spec import ENGINE

_COUNTS = ("train.ranks", "bagging.models", "models")
"""The settings of P and M, without the name of a workload."""


@dataclass(frozen=True)
class RunSize:
    """The shape of each workload of a run."""

    shapes: dict[str, Shape]
    assignments: tuple[str, ...]
    """The settings of these shapes, as far as they differ from those requested."""

    @property
    def largest(self) -> Shape:
        """The shape with the most ranks."""
        return max(self.shapes.values(), key=lambda item: item.models * item.ranks)

    @property
    def largest_ensemble(self) -> Shape:
        """The same among workloads that are no searches, if there are any."""
        others = [item for name, item in self.shapes.items() if not workload(name).is_search]
        return max(others or self.shapes.values(), key=lambda item: item.models * item.ranks)


def size_run(
    requested: Settings,
    given: Collection[str] = (),
    *,
    scale: int | None = None,
    models: int | None = None,
    ranks: int | None = None,
    slots: int | None = None,
) -> RunSize:
    """Return M and P of each workload: as requested, else the defaults for the nodes.

    ``given`` names the settings that the user set. With a ``scale``, M × P equals it (HPC AI500
    V3.0, equation 5), and ``models`` and ``ranks`` are options to be combined with it. With
    ``slots``, the nodes are ``launch.nodes`` others that take so many ranks each.
    """
    launch = requested.launch
    place = launcher_class(launch.on)
    cluster = not place.is_this_machine or slots is not None
    sections = workload_settings(requested)
    shapes, assignments = {}, []
    for name, section in requested.workloads.items():
        spec, train = workload(name), section["train"]
        nodes = known_nodes(launch, train["device"], slots)
        number = launch.nodes
        if cluster and number is None and slots is None and place.nodes_reserved():
            number = len(nodes)
        set_models, set_ranks = _counts(requested, name, given)
        if scale is not None:
            set_models = set_models if models is None else models
            set_ranks = set_ranks if ranks is None else ranks
        elif not spec.is_search and spec.runner != ENGINE:
            set_models, set_ranks = set_models or 1, set_ranks or 1
        elif not spec.is_search and not _several_ranks(train):
            set_ranks = set_ranks or 1
        most = most_copies(requested.profile, spec, sections[name].train)
        asked = Asked(set_models, set_ranks, number if cluster else None, scale, most)
        found = shape(
            nodes,
            asked,
            cluster=cluster,
            single=not spec.can_be_bagged and not spec.is_search,
            workers=spec.is_search,
            waves=requested.bagging.waves,
        )
        shapes[name] = found
        if found.ranks != train["ranks"]:
            assignments.append(f"{name}.train.ranks={found.ranks}")
        if spec.is_search and found.models != section["search"]["workers"]:
            assignments.append(f"{name}.search.workers={found.models}")
        elif not spec.is_search and found.models != requested.models_of(name):
            assignments.append(f"{name}.models={found.models}")
    own_nodes = all(item.ranks_per_node == item.ranks for item in shapes.values())
    if cluster and launch.ranks_per_node is None and not own_nodes:
        per_node = max(item.ranks_per_node for item in shapes.values())
        assignments.append(f"launch.ranks_per_node={per_node}")
    return RunSize(shapes, tuple(assignments))


def place_models(size: Shape, *, waves: bool) -> Plan:
    """Return the placement of the models on the nodes; raise UsageError if they do not fit."""
    return plan(size.nodes, size.models, size.ranks, waves=waves)


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


def _several_ranks(train: dict[str, Any]) -> bool:
    """Whether ranks can share a model with this framework and precision."""
    framework = FRAMEWORKS.get(train["framework"])
    offered = framework is None or framework.several_ranks
    return offered and train["precision"] not in EIGHT_BIT_PRECISIONS


def _without_workload(name: str, settings: Settings) -> str:
    """Return the name of a setting without ``workloads.`` and the name of a workload."""
    first, _, rest = name.removeprefix("workloads.").partition(".")
    return rest if first in settings.workloads else name


def _counts(settings: Settings, name: str, given: Collection[str]) -> tuple[int | None, int | None]:
    """Return M and P of a workload; None for a default of 1 that the user did not set."""
    section = settings.workloads[name]
    own = {key.removeprefix("workloads.").removeprefix(f"{name}.") for key in given}
    if workload(name).is_search:
        models, models_given = section["search"]["workers"], "search.workers" in own
    else:
        models, models_given = settings.models_of(name), bool(own & {"models", "bagging.models"})
    ranks = section["train"]["ranks"]
    return (
        models if models > 1 or models_given else None,
        ranks if ranks > 1 or "train.ranks" in own else None,
    )
