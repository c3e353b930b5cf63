"""What is refused before there is a run folder: settings that no run could be done with."""

from __future__ import annotations

from vflops.config.launch import LaunchSettings
from vflops.config.settings import Settings
from vflops.config.training import EIGHT_BITS, TrainSettings, WorkloadSettings
from vflops.errors import UsageError
from vflops.launch.factory import backend
from vflops.record.formats.job import DataFacts
from vflops.train.parallel.footprint import Footprint
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import workload_settings
from vflops.workloads.contract.spec import ENGINE, WorkloadSpec


def check_launch(launch: LaunchSettings) -> None:
    """Refuse what no job could be started with: no scheduler, a wrong site, a container here."""
    backend(launch.on).check(launch)


def check_all(settings: Settings, *, here: bool = True) -> None:
    """Refuse a run whose workloads have no place or no sense.

    ``here`` False: it is for a machine that is not here, whose nodes nobody can ask.
    """
    if here:
        check_launch(settings.launch)
    for name, section in workload_settings(settings).items():
        if here:
            check(settings, workload(name), section)
            continue
        check_ensemble(settings, workload(name))
        if workload(name).is_search:
            _check_search(settings, name, section.train)


def check(settings: Settings, spec: WorkloadSpec, section: WorkloadSettings) -> None:
    """Refuse a workload whose models, or workers, have no place or no sense."""
    check_ensemble(settings, spec)
    workers = spec.load_code().workers(section)
    if workers is not None:
        _check_room(settings, workers, section.train)
        _check_search(settings, spec.name, section.train)
    models, waves = workers or settings.models_of(spec.name), settings.bagging.waves
    place = backend(settings.launch.on)
    if place.is_this_machine:
        if spec.runner == ENGINE or workers:
            _check_placement(section.train, models, settings.launch, waves=waves)
    elif place.knows_nodes:
        _check_nodes(settings.launch, section.train, models, waves)


def check_model(spec: WorkloadSpec, section: WorkloadSettings, data: DataFacts) -> Footprint | None:
    """Refuse a model that cannot be shared, or computed, as the settings say; few need a look.

    What a rank keeps of it, where that is not the whole.
    """
    train, held = section.train, None
    if spec.runner != ENGINE:
        spec.load_code().check_data(section, data)
        return None
    if train.parallel.inner != "data":
        from vflops.train.parallel.feasibility import held as find

        held = find(spec.load_code().create(section, data), spec.name, train)
    if train.precision in EIGHT_BITS:
        from vflops.counting.meta_device import on_meta
        from vflops.train.eight_bit import check_products

        model = spec.load_code().create(section, data).model
        check_products(on_meta(model, spec.name), train.precision)
    return held


def _check_nodes(launch: LaunchSettings, train: TrainSettings, models: int, waves: bool) -> None:
    from vflops.launch.nodes import known_nodes, usable_nodes
    from vflops.launch.placement import Node, capacity, plan

    ranks = train.ranks
    try:
        plan(usable_nodes(launch, train.device, ranks), models, ranks, waves=waves)
    except UsageError as error:
        nodes = known_nodes(launch, train.device)
        slots = min(node.slots for node in nodes)
        shared = [Node(node.name, slots) for node in nodes]
        if launch.ranks_per_node is None and capacity(shared, ranks, models) == models:
            error.hint = f"{error.hint}; or several on a node, --set launch.ranks_per_node={slots}"
        raise


def check_ensemble(settings: Settings, spec: WorkloadSpec) -> None:
    """Refuse models that nobody could combine, and twins that are not in pairs."""
    name, models = spec.name, settings.models_of(spec.name)
    if models > 1 and not spec.can_be_bagged:
        raise UsageError(
            f"{name} cannot be an ensemble: its {models} models would leave no predictions that"
            " could be combined",
            hint=f"leave out --models; {models} trainings one after the other: --repeat {models}",
        )
    if settings.bagging.twins and models % 2:
        raise UsageError(
            f"twins come in pairs, and {name} has {models} model{'s' * (models > 1)}",
            hint=f"take --models {models + 1}" + (f" or {models - 1}" if models > 1 else ""),
        )


def _check_room(settings: Settings, workers: int, train: TrainSettings) -> None:
    """All workers must have a place at once."""
    from vflops.launch.nodes import usable_nodes
    from vflops.launch.placement import capacity

    if backend(settings.launch.on).knows_nodes:
        places = usable_nodes(settings.launch, train.device, train.ranks)
        slots, fit = sum(node.slots for node in places), capacity(places, train.ranks, workers)
        if 0 < fit < workers:
            raise UsageError(
                f"{workers} workers × {train.ranks} ranks do not fit here: there are {slots} slots",
                hint=f"take --workers {fit}" + (" or fewer" if fit > 1 else ""),
            )


def _check_search(settings: Settings, name: str, train: TrainSettings) -> None:
    """Refuse workers that are base models or repeats, or that share more than data."""
    if train.parallel.mode != "data":
        raise UsageError(
            f"{name} is a search, whose candidates are trained by parallel.mode data only, "
            f"and it is {train.parallel.mode}",
            hint="leave out train.parallel",
        )
    if len(settings.workloads) > 1:  # they are for the others of the suite
        return
    if settings.models_of(name) > 1:
        models = settings.models_of(name)
        raise UsageError(
            f"{name} is a search: it has workers, and no {models} base models",
            hint=f"take --workers {models}",
        )
    if settings.repeat > 1:
        raise UsageError(
            f"{name} is a search, and a run holds one: repeat is {settings.repeat}",
            hint="run it again with another --seed, or repeat its work: vflops replay RUN",
        )


def _check_placement(
    settings: TrainSettings, models: int, launch: LaunchSettings, *, waves: bool
) -> None:
    """Refuse more ranks than this machine has devices for, and precisions that they lack."""
    from vflops.launch.placement import Node, plan
    from vflops.machine.devices import pick, rank_capacity
    from vflops.train.precision import Precision

    name, ranks = settings.device, settings.ranks
    place = pick(name, "train.device").torch_device
    count, devices = rank_capacity(name, launch.cores_per_rank)
    what = f"{place.type} devices" if devices else "processor cores"
    if devices and ":" in name:
        what = f"named device, {name}"
    if ranks > count:
        raise UsageError(
            f"{ranks} ranks need a device each: there are {count} {what}",
            hint=f"take --ranks {count}" + (" or fewer" if count > 1 else ""),
        )
    plan([Node("this machine", count)], models, ranks, waves=waves)
    Precision.named(settings.precision, place)
