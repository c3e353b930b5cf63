"""The ``system_desc`` of an MLPerf training submission, which describes its system."""

from __future__ import annotations

from collections import Counter

from vflops.errors import unknown_name
from vflops.machine.probe import absent
from vflops.machine.system.fact_text import format_fact
from vflops.record.formats.system import Fact, SystemRecord

DIVISIONS = ("closed", "open")
RDI = "Research, Development, or Internal (RDI)"
STATUSES = ("Available on-premise", "Available cloud", RDI, "Preview")

_NO_ACCELERATOR = "N/A: no accelerator"
# For each key, a format string and the names of the accelerator facts to insert.
_PER_ACCELERATOR = {
    "accelerator_model_name": ("{}", "model"),
    "accelerator_host_interconnect": ("PCIe {} x{}", "pcie generation max", "pcie lanes max"),
    "accelerator_frequency": ("{}", "clock max"),
    "accelerator_on-chip_memories": ("L2 {}", "L2 cache"),
    "accelerator_memory_configuration": ("{} at {}", "memory bus width", "memory clock max"),
    "accelerator_memory_capacity": ("{}", "memory"),
    "accelerator_interconnect": ("NVLink: {} links", "nvlinks active"),
}


def system_desc(
    record: SystemRecord,
    *,
    submitter: str,
    division: str,
    status: str = RDI,
    system_name: str,
    nodes: int = 1,
    framework: str | None = None,
) -> dict[str, str]:
    """Return the 33 keys that the checker of mlperf-logging requires for training 4.0.0.

    ``framework`` is what trained the models; None for the PyTorch of the record. All values are
    text. A value that the record does not have is ``not measured`` with the reason.
    """
    if division not in DIVISIONS:
        raise unknown_name("division", division, DIVISIONS)
    if status not in STATUSES:
        raise unknown_name("status", status, STATUSES)
    return {
        "submitter": submitter,
        "division": division,
        "status": status,
        "system_name": system_name,
        "number_of_nodes": str(nodes),
        **_host(record),
        **_accelerators(record),
        "cooling": _not_measured("software cannot tell"),
        "hw_notes": _hardware_notes(record),
        **_software(record),
        **({} if framework is None else {"framework": framework}),
    }


def _host(record: SystemRecord) -> dict[str, str]:
    def hardware(*names: str) -> str:
        return _text(*(_fact(record, "hardware", name) for name in names))

    return {
        "host_processors_per_node": hardware("cpu sockets"),
        "host_processor_model_name": hardware("cpu model"),
        "host_processor_core_count": _cores_per_socket(record),
        "host_processor_vcpu_count": hardware("logical cpus"),
        "host_processor_frequency": _frequency(record),
        "host_processor_caches": _caches(record),
        "host_processor_interconnect": _not_measured("the kernel does not report it"),
        "host_memory_capacity": hardware("memory"),
        "host_storage_type": hardware("file system", "file system medium"),
        "host_storage_capacity": hardware("file system size"),
        "host_networking": _networking(record),
        "host_networking_topology": _not_measured("one node does not see it"),
        "host_memory_configuration": hardware("memory type", "memory speed"),
    }


def _frequency(record: SystemRecord) -> str:
    highest, now = (_fact(record, "hardware", f"cpu clock {when}") for when in ("max", "now"))
    if highest.value is None and now.value is not None:
        return f"{format_fact(now)} when read"
    return _text(highest)


def _cores_per_socket(record: SystemRecord) -> str:
    """Return the cores per processor, as MLPerf counts them; the record has cores per node."""
    cores = _fact(record, "hardware", "physical cores")
    sockets = _fact(record, "hardware", "cpu sockets")
    if not (isinstance(cores.value, int) and isinstance(sockets.value, int) and sockets.value):
        return _not_measured(cores.reason or sockets.reason or "not a count")
    if cores.value % sockets.value:
        return _not_measured(f"{cores.value} cores on {sockets.value} unequal processors")
    return str(cores.value // sockets.value)


def _caches(record: SystemRecord) -> str:
    facts = record.matching("hardware", "cpu L* cache")
    known = [
        f"{fact.name.split()[1]} {format_fact(fact)}" for fact in facts if fact.value is not None
    ]
    return "; ".join(known) or _not_measured("the kernel lists none")


def _networking(record: SystemRecord) -> str:
    """Return the links that are up, such as ``rdma 8 x 400 Gbit/s InfiniBand``.

    RDMA ports and interfaces are both listed, although a RoCE port is also an interface.
    """
    ports = [
        f"{_text(rate)} {_text(_fact(record, 'hardware', f'{port} link'))}"
        for rate in record.matching("hardware", "rdma * rate")
        for port in [rate.name.removesuffix(" rate")]
        if _fact(record, "hardware", f"{port} state").value == "active"
    ]
    speeds = record.matching("hardware", "interface * speed")
    interfaces = [format_fact(speed) for speed in speeds if speed.value is not None]
    counted = [
        f"{kind} {count} x {link}"
        for kind, links in (("rdma", ports), ("interfaces", interfaces))
        for link, count in Counter(links).items()
    ]
    return "; ".join(counted) or _not_measured("no link reports its speed")


def _accelerators(record: SystemRecord) -> dict[str, str]:
    count = _fact(record, "hardware", "accelerators")
    values = {
        key: _accelerator_property(record, *figure) for key, figure in _PER_ACCELERATOR.items()
    }
    values["accelerator_interconnect_topology"] = _not_measured("vflops does not read it from NVML")
    if count.value == 0:
        values = dict.fromkeys(values, _NO_ACCELERATOR)
    return {"accelerators_per_node": _text(count), **values}


def _accelerator_property(record: SystemRecord, template: str, *names: str) -> str:
    """Return one property of all accelerators; equal values are listed once."""
    texts = []
    for model in record.matching("hardware", "accelerator * model"):
        prefix = model.name.removesuffix(" model")
        facts = [_fact(record, "hardware", f"{prefix} {name}") for name in names]
        reasons = [fact.reason for fact in facts if fact.reason is not None]
        texts.append(
            _not_measured(reasons[0]) if reasons else template.format(*map(format_fact, facts))
        )
    return "; ".join(dict.fromkeys(texts)) or _not_measured("the record has no accelerator")


def _software(record: SystemRecord) -> dict[str, str]:
    def stack(layer: str, names: tuple[str, ...]) -> list[str]:
        facts = (_fact(record, layer, name) for name in names)
        return [f"{fact.name} {format_fact(fact)}" for fact in facts if fact.value is not None]

    system = "operating system"
    torch = _fact(record, "framework", "torch")
    libraries = ("nvidia driver", "cuda", "cudnn", "cublas", "rocm", "onednn", "mkl")
    others = [
        *stack("framework", ("python", "numpy", "triton")),
        *stack("accelerator libraries", libraries),
        *stack("communication libraries", ("nccl", "mpi", "ucx", "libfabric")),
    ]
    return {
        "framework": f"PyTorch {torch.value}" if torch.value else _text(torch),
        "other_software_stack": "; ".join(others) or _not_measured("the record has none"),
        "operating_system": "; ".join(
            [_text(_fact(record, system, "distribution")), *stack(system, ("kernel",))]
        ),
        "sw_notes": "; ".join(
            [
                *stack(system, ("container", "scheduler")),
                *stack("framework", ("vflops",)),
                *([f"submitted from {record.submitted_from}"] if record.submitted_from else []),
                f"gathered {record.gathered_utc}",
            ]
        ),
    }


def _hardware_notes(record: SystemRecord) -> str:
    """Return notes that matter for a comparison with a node of the same hardware."""
    usable, logical = (_fact(record, "hardware", f"{kind} cpus") for kind in ("usable", "logical"))
    usable_accelerators, all_accelerators = (
        _fact(record, "hardware", f"accelerators{which}") for which in ("", " seen by NVML")
    )
    virtual = _fact(record, "operating system", "virtualisation")
    notes = []
    if usable.value is not None and usable.value != logical.value:
        notes.append(f"{format_fact(usable)} of {format_fact(logical)} CPUs are usable")
    if (
        None not in (usable_accelerators.value, all_accelerators.value)
        and usable_accelerators.value != all_accelerators.value
    ):
        notes.append(
            f"{format_fact(usable_accelerators)} of {format_fact(all_accelerators)} accelerators "
            "are usable"
        )
    if virtual.value not in (None, "none"):
        notes.append(f"virtual machine: {format_fact(virtual)}")
    return "; ".join(notes) or "none"


def _text(*facts: Fact) -> str:
    """Return the known values, or the reason of the first fact if there are none."""
    known = [format_fact(fact) for fact in facts if fact.value is not None]
    return "; ".join(known) or _not_measured(facts[0].reason or "")


def _not_measured(reason: str) -> str:
    # The checker joins the values with commas without quoting them.
    return f"not measured: {reason}".replace(",", ";")


def _fact(record: SystemRecord, layer: str, name: str) -> Fact:
    """Return a fact, or an absent fact if its whole area could not be read."""
    facts = record.matching(layer, name)
    return facts[0] if facts else absent(name, "system.json", "the record does not have it")
