"""Checks of settings before a run folder is created."""

from __future__ import annotations

from typing import Any

from vflops.config.launch import LaunchSettings
from vflops.config.settings import Settings
from vflops.config.training import EIGHT_BIT_PRECISIONS, TrainSettings, WorkloadSettings
from vflops.counting.conventions import convention
from vflops.errors import Hint, UsageError
from vflops.launch.factory import launcher_class
from vflops.record.files.cache import trusted_cache
from vflops.record.formats.job import DataFacts
from vflops.train.parallel.footprint import Footprint
from vflops.workloads.contract.profile_batch import batch_fault
from vflops.workloads.contract.profile_batch import most_copies as most_copies
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import workload_settings
from vflops.workloads.contract.spec import ENGINE, WorkloadSpec, check_framework


def check_launch(launch: LaunchSettings) -> None:
    """Raise if no job could be started, for example because there is no scheduler."""
    launcher_class(launch.on).check(launch)


def check_run(settings: Settings, *, here: bool = True) -> None:
    """Raise if the run cannot do all that its settings ask for, before any data is read.

    ``here`` is False if the run is for another machine, whose nodes cannot be queried.
    """
    if settings.workloads:  # before the ceilings, whose device is by default that of training
        check_all(settings, here=here)
    for name in settings.count.models:
        from vflops.models.model_registry import model

        if model(name).input_shape is None:
            raise UsageError(
                f"count.models includes {name!r}, whose input shape is not known",
                hint=Hint("count it separately", f"vflops count {name} --input SHAPE"),
            )
    if here and launcher_class(settings.launch.on).is_this_machine:
        from vflops.machine.ceilings.measure import planned_items  # imports torch

        planned_items(settings.micro)


def check_all(settings: Settings, *, here: bool = True) -> None:
    """Raise if a workload of the run does not fit the machine, or its settings conflict.

    ``here`` is False if the run is for another machine, whose nodes cannot be queried.
    """
    if here:
        check_launch(settings.launch)
    check_kernels(settings)
    for name, section in workload_settings(settings).items():
        if here:
            check(settings, workload(name), section)
            continue
        check_ensemble(settings, workload(name), section)
        check_framework(workload(name), section.train.framework)
        _require_offered(section.train, settings.launch)
        _check_early_stop(workload(name), section.train)
        if workload(name).is_search:
            _check_search(settings, name, section.train)


def check(settings: Settings, spec: WorkloadSpec, section: WorkloadSettings) -> None:
    """Raise if a workload's models or workers do not fit the nodes, or its settings conflict."""
    convention(spec.rules)  # raises if it is not installed
    check_ensemble(settings, spec, section)
    check_framework(spec, section.train.framework)
    _require_offered(section.train, settings.launch)
    if launcher_class(settings.launch.on).is_this_machine:
        _require_framework(section.train)
    _check_early_stop(spec, section.train)
    workers = spec.load_code().workers(section)
    if workers is not None:
        _check_workers_fit(settings, spec.name, workers, section.train)
        _check_search(settings, spec.name, section.train)
    models, waves = workers or settings.models_of(spec.name), settings.bagging.waves
    place = launcher_class(settings.launch.on)
    if place.is_this_machine:
        if spec.runner == ENGINE or workers:
            _check_placement(section.train, models, settings.launch, waves=waves)
        elif models > 1:
            _check_room(section.train, models, settings.launch, waves=waves)
    else:
        _check_nodes(settings.launch, section.train, models, waves)


def check_batch(
    settings: Settings, spec: WorkloadSpec, train: TrainSettings, samples: int | None = None
) -> None:
    """Raise if the batch of a profile does not suit this many ranks, but suits fewer.

    A rehearsal, which trains to no target, is not refused. ``samples`` is the size of the training
    set, if known.
    """
    fault = batch_fault(settings.profile, spec, train, samples)
    if fault is not None and not settings.launch.rehearse:
        raise UsageError(fault.text, hint=fault.hint)


def rehearsed_fault(
    settings: Settings, spec: WorkloadSpec, train: TrainSettings, samples: int | None = None
) -> str | None:
    """Return why the run that a rehearsal stands for would be refused; None if it would not."""
    fault = batch_fault(settings.profile, spec, train, samples)
    return fault.of_real_run if fault is not None and settings.launch.rehearse else None


def check_model(spec: WorkloadSpec, section: WorkloadSettings, data: DataFacts) -> Footprint | None:
    """Return the footprint of a rank; None if each rank has the whole model.

    Raise if the ranks cannot share the model, or cannot compute it in the precision.
    """
    train, footprint = section.train, None
    if spec.runner != ENGINE:
        spec.load_code().check_data(section, data)
        return None
    if train.parallel.inner != "data":
        from vflops.train.parallel.feasibility import footprint as footprint_of

        footprint = footprint_of(spec.load_code().create(section, data), spec.name, train)
    if train.precision in EIGHT_BIT_PRECISIONS:
        from vflops.counting.meta_device import on_meta
        from vflops.train.eight_bit import check_convertible

        model = spec.load_code().create(section, data).model
        check_convertible(on_meta(model, spec.name), train.precision)
    return footprint


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
            error.hint = f"{error.hint}; or share nodes: --set launch.ranks_per_node={slots}"
        raise


def check_ensemble(settings: Settings, spec: WorkloadSpec, section: WorkloadSettings) -> None:
    """Raise if the models cannot be combined, or twins are not in pairs."""
    name, models = spec.name, settings.models_of(spec.name)
    if models > 1 and not spec.can_be_bagged:
        raise UsageError(
            f"{name} cannot be an ensemble: its models store no predictions that could be combined",
            hint=f"omit --models; to train {models} models in turn, use --repeat {models}",
        )
    if models > 1 and spec.runner != ENGINE:
        spec.load_code().check_ensemble(section)
    if settings.bagging.twins and models % 2:
        raise UsageError(
            f"twins come in pairs, but {name} has {models} model{'s' * (models > 1)}",
            hint=f"use --models {models + 1}" + (f" or {models - 1}" if models > 1 else ""),
        )


def check_kernels(settings: Settings) -> None:
    """Raise if kernels shall be profiled in another framework than PyTorch."""
    for name, section in workload_settings(settings).items():
        if settings.telemetry.kernels and section.train.framework != "pytorch":
            raise UsageError(
                f"kernels are profiled in PyTorch, but {name} is trained with "
                f"{section.train.framework}",
                hint="omit --kernels and telemetry.kernels",
            )


def framework_warnings(settings: Settings) -> list[str]:
    """Return the frameworks that are missing here, if the jobs run on other nodes.

    The nodes may have another environment, such as that of a container.
    """
    from vflops.train.backends.availability import require_framework

    if launcher_class(settings.launch.on).is_this_machine:
        return []
    warnings = []
    for framework in {part.train.framework for part in workload_settings(settings).values()}:
        try:
            require_framework(framework)
        except UsageError as error:
            warnings.append(f"{error.message} here; the jobs will fail if it is not on the nodes")
    return warnings


def cache_warnings() -> list[str]:
    """Return why compiled kernels are not kept in the cache, if others can write to it."""
    try:
        trusted_cache()
    except UsageError as error:
        return [f"{error.message}, so kernels are compiled again; {error.hint}"]
    return []


def _require_offered(train: TrainSettings, launch: LaunchSettings) -> None:
    """Raise if the framework is not offered on the accelerators or nodes that a run asks for."""
    from vflops.train.backends.availability import require_offered, require_one_node

    if not launcher_class(launch.on).is_this_machine:
        require_one_node(train.framework, train.ranks, launch.ranks_per_node or train.ranks)
    names_accelerator = train.device not in ("auto", "cpu")
    if names_accelerator or (launch.gpus_per_rank and train.device != "cpu"):
        # Which kind of GPU a node has is known there only: until then they count as NVIDIA's.
        require_offered(train.framework, train.device if names_accelerator else "cuda", train.ranks)


def _require_framework(train: TrainSettings) -> None:
    """Raise if the framework is not installed on this machine, or does not see the device."""
    if train.framework == "pytorch":
        return
    from vflops.machine.devices import pick
    from vflops.train.backends.availability import require_accelerator, require_framework

    require_framework(train.framework)
    device = pick(train.device, "train.device").torch_device.type
    require_accelerator(train.framework, device, train.ranks)


def require_framework_for(train: dict[str, Any]) -> None:
    """Raise if the framework of a section ``train`` cannot train on this machine."""
    _require_framework(TrainSettings.model_validate(train))


def _check_early_stop(spec: WorkloadSpec, train: TrainSettings) -> None:
    """Raise if training shall stop by a loss that the workload does not measure."""
    if train.stop_by == "loss" and not spec.measures_loss:
        raise UsageError(
            f"train.stop_by is loss, but the evaluations of {spec.name} measure no loss",
            hint="stop by the quality: --set train.stop_by=quality",
        )


def _check_workers_fit(settings: Settings, name: str, workers: int, train: TrainSettings) -> None:
    """Raise if the workers do not all fit at once."""
    from vflops.launch.nodes import usable_nodes
    from vflops.launch.placement import capacity
    from vflops.units import count

    nodes = usable_nodes(settings.launch, train.device, train.ranks)
    slots, fit = sum(node.slots for node in nodes), capacity(nodes, train.ranks, workers)
    if 0 < fit < workers:
        needed = f"{count(workers, 'worker')} × {count(train.ranks, 'rank')}"
        room = f"there {'is' if slots == 1 else 'are'} {count(slots, 'slot')}"
        is_alone = len(settings.workloads) == 1  # --workers is for a run of one search
        option = f"--workers {fit}" if is_alone else f"--set {name}.search.workers={fit}"
        raise UsageError(
            f"{needed} do not fit: {room}",
            hint=f"use {option}" + (" or fewer" if fit > 1 else ""),
        )


def _check_search(settings: Settings, name: str, train: TrainSettings) -> None:
    """Raise if a search has base models, repeats, or a parallel mode other than data."""
    if train.parallel.mode != "data":
        raise UsageError(
            f"{name} is a search, which needs parallel.mode data, but it is {train.parallel.mode}",
            hint="omit train.parallel",
        )
    if len(settings.workloads) > 1:  # models and repeats are meant for other workloads of the run
        return
    if settings.models_of(name) > 1:
        models = settings.models_of(name)
        raise UsageError(
            f"{name} is a search: use --workers, not --models {models}",
            hint=f"use --workers {models}",
        )
    if settings.repeat > 1:
        raise UsageError(
            f"{name} is a search, which a run cannot repeat, but repeat is {settings.repeat}",
            hint=Hint("run it again with another --seed, or repeat its work", "vflops replay RUN"),
        )


def _check_placement(
    train: TrainSettings, models: int, launch: LaunchSettings, *, waves: bool
) -> None:
    """Raise if this machine has too few devices, or they do not support the settings."""
    from vflops.machine.devices import pick
    from vflops.train.communication.fixed_algorithm import check_backend
    from vflops.train.parallel.group import backend_of
    from vflops.train.precision import Precision

    _check_room(train, models, launch, waves=waves)
    device = pick(train.device, "train.device").torch_device
    check_backend(train.communication.algorithm, backend_of(device))
    Precision.named(train.precision, device)


def _check_room(train: TrainSettings, models: int, launch: LaunchSettings, *, waves: bool) -> None:
    """Raise if this machine has too few devices for the ranks of all models."""
    from vflops.launch.placement import plan
    from vflops.launch.sizing import local_node, local_nodes

    if launch.rehearse:
        plan(local_nodes(launch, train.device), models, train.ranks, waves=waves)
        return
    check_ranks(train, train.ranks, launch)
    plan([local_node(launch, train.device)], models, train.ranks, waves=waves)


def check_ranks(train: TrainSettings, ranks: int, launch: LaunchSettings) -> None:
    """Raise if this machine has too few devices for ``ranks`` ranks of one model.

    The hint names a number of ranks that the batch of ``train`` can be divided by.
    """
    from vflops.launch.sizing import local_node
    from vflops.machine.devices import pick

    device = pick(train.device, "train.device").torch_device
    node = local_node(launch, train.device)
    count, slot = node.slots, f"{device.type} device" if node.accelerated else "processor core"
    if ranks > count:
        parts = train.accumulate * train.ghosts
        suited = max(n for n in range(1, count + 1) if n == 1 or train.batch % (n * parts) == 0)
        raise UsageError(
            f"{ranks} ranks do not fit on this machine: it has room for {count}, one {slot} each",
            hint=f"use --ranks {suited}" + (" or fewer" if suited > 1 else ""),
        )
