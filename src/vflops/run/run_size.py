"""The number of models and ranks of a run, from its options and the nodes that it can use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vflops.config.frameworks import FRAMEWORKS
from vflops.config.launch import LaunchSettings
from vflops.config.settings import Settings
from vflops.config.training import EIGHT_BIT_PRECISIONS
from vflops.errors import UsageError
from vflops.launch.factory import launcher_class
from vflops.launch.launcher import Launcher
from vflops.launch.node_layout import NodeLayout
from vflops.launch.nodes import known_nodes, usable_nodes
from vflops.launch.placement import Node, Plan, plan
from vflops.launch.site import SiteSettings, site_for
from vflops.launch.sizing import Asked, RankShare, Shape, rank_share, shape
from vflops.run.validate import most_copies
from vflops.units import count, quantity
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
    cluster = not place.is_this_machine or slots is not None or launch.rehearse
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
    own_nodes = own_nodes and not launch.rehearse  # whose nodes here have other slots
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


def request_lines(settings: Settings) -> tuple[list[str], list[str]]:
    """Return what a run asks of a scheduler, and the resources of its nodes that stay idle."""
    launch = settings.launch
    launcher = launcher_class(launch.on)
    if launcher.is_this_machine:
        return [], []
    site = site_for(launch)
    whole = site.exclusive or launcher.nodes_reserved()
    lines, idle = [], []
    for name, section in workload_settings(settings).items():
        ranks = section.train.ranks
        models = workload(name).load_code().workers(section) or settings.models_of(name)
        nodes = usable_nodes(launch, section.train.device, ranks)
        if launcher.gang_scheduled(launch):
            placements = plan(nodes, models, ranks, waves=settings.bagging.waves).placements
            first_wave = [item.places for item in placements if item.wave == 0]
            busy = Counter(node for places in first_wave for node, slots in places for _ in slots)
            used, per_node, slots = len(busy), max(busy.values()), nodes[0].slots
            ranks_used = busy.total()
        else:
            layout = NodeLayout(ranks, launch.ranks_per_node or ranks)
            used, per_node = models * layout.nodes, layout.ranks_per_node
            ranks_used = models * ranks
            slots = per_node if whole else layout.slots
        share = rank_share(nodes, slots, launch, whole=whole)
        if launch.rehearse:
            parts = [count(share.gpus, "GPU")] * bool(share.gpus) + [count(share.cores, "core")]
            ranks_here = count(per_node, "rank")
            lines.append(f"{count(used, 'node')}: {ranks_here} share {' and '.join(parts)} of each")
            continue
        lines.append(_request_line(used, per_node, share, _owner(launcher, site)))
        available = launch.nodes or (len(nodes) if launcher.nodes_reserved() else used)
        if used < available:
            idle.append(f"{available - used} of {available} nodes stay idle")
        resources = nodes[0].resources
        if resources is None:
            continue
        idle += _idle("GPUs", resources.gpus, share.gpus, used, per_node, ranks_used)
        if whole:
            idle += _idle("cores", resources.cores, share.cores, used, per_node, ranks_used)
    return list(dict.fromkeys(lines)), list(dict.fromkeys(idle))


def rehearsal_line(settings: Settings) -> str | None:
    """Return what a rehearsal acts out, and on what; None for another run."""
    launch = settings.launch
    if not launch.rehearse or not settings.workloads:
        return None
    texts = []
    for section in workload_settings(settings).values():
        nodes = known_nodes(launch, section.train.device)[: launch.nodes]
        ranks = count(len(nodes) * nodes[0].slots, "rank")
        layout = f"{count(len(nodes), 'node')} of {count(nodes[0].slots, 'rank')}"
        texts.append(f"{ranks} on {layout} share {_shared_resources(launch, nodes[0])}")
    where = "" if launcher_class(launch.on).is_this_machine else " of each node"
    return f"rehearsal: {'; '.join(dict.fromkeys(texts))}{where}; no score, never a valid result"


def _shared_resources(launch: LaunchSettings, node: Node) -> str:
    """Return the accelerators or the cores that ranks share, and the memory of this machine."""
    share = rank_share([node], node.slots, launch)
    kind = f" ({share.gpu_type})" if share.gpu_type else ""
    parts = [f"{count(share.gpus, 'accelerator')}{kind}"] if share.gpus else []
    parts.append(count(share.cores, "core"))
    if share.memory_mb:
        parts.append(f"{quantity(share.memory_mb * 2**20, 'B')} of memory")
    return " and ".join(parts)


def _idle(
    what: str, owned: int, of_rank: int, nodes: int, per_node: int, ranks: int
) -> Iterator[str]:
    """Yield how many GPUs or cores of the nodes no rank uses.

    A node owns ``owned`` of them and has at most ``per_node`` of the run's ``ranks``. Fewer cores
    than ranks do not count: they cannot be divided.
    """
    alike = ranks == nodes * per_node
    if alike:
        nodes, ranks = 1, per_node
    total, idle = nodes * owned, nodes * owned - ranks * of_rank
    if idle >= (ranks if what == "cores" else 1):
        place = "a node" if alike else f"the {nodes} nodes"
        yield f"{idle} of {total} {what} of {place} stay idle"


def _owner(launcher: type[Launcher], site: SiteSettings) -> str:
    """Return the partition and the account of the jobs, unless the nodes are already reserved."""
    if launcher.nodes_reserved():
        return ""
    owner = f", partition {site.used_partition}" if site.used_partition else ""
    return owner + (f", account {site.used_account}" if site.used_account else "")


def _request_line(nodes: int, per_node: int, share: RankShare, owner: str) -> str:
    number = per_node * (share.gpus or 1)
    what = count(number, "GPU" if share.gpus else "rank")
    kind = f" ({share.gpu_type})" if share.gpus and share.gpu_type else ""
    memory = f" and {quantity(share.memory_mb * 2**20, 'B')}" if share.memory_mb else ""
    return (
        f"{count(nodes, 'node')} × {what}{kind}, {count(share.cores, 'core')}{memory} a rank{owner}"
    )
