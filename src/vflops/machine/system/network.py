"""The network: interfaces with a physical link, and RDMA ports."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from vflops.machine.probe import AbsentError, absent, fact, filled_text, missing, text
from vflops.record.formats.system import Fact

_NET = "/sys/class/net"
_RDMA = "/sys/class/infiniband"


def network_facts(root: Path) -> list[Fact]:
    """Return facts about interfaces and RDMA ports; addresses are never read."""
    return [*_interface_facts(root), *_rdma_facts(root)]


def _interface_facts(root: Path) -> list[Fact]:
    folder = root / "sys/class/net"
    if not folder.is_dir():
        return [absent("interfaces", _NET, f"{_NET} does not exist")]
    # The folder also contains plain files such as bonding_masters.
    paths = sorted(path for path in folder.iterdir() if path.is_dir() and path.name != "lo")
    linked = [path for path in paths if _has_link(path)]
    virtual = ", ".join(path.name for path in paths if path not in linked)
    facts = [
        fact("interfaces", _NET, lambda: len(linked)),
        fact("virtual interfaces", _NET, lambda: virtual or "none"),
    ]
    for path in linked:
        facts += _interface(path)
    return facts


def _interface(path: Path) -> list[Fact]:
    name, source = f"interface {path.name}", f"{_NET}/{path.name}"
    return [
        fact(f"{name} speed", f"{source}/speed", lambda: _speed_mbit_s(path), unit="Mbit/s"),
        fact(f"{name} state", f"{source}/operstate", lambda: text(path / "operstate")),
        fact(f"{name} driver", f"{source}/device/driver", lambda: _driver(path)),
    ]


def _has_link(path: Path) -> bool:
    """Whether the interface has a physical link; others report meaningless speeds."""
    is_bond_or_vlan = (path / "bonding").is_dir() or "DEVTYPE=vlan" in _uevent(path)
    return is_bond_or_vlan or (path / "device").exists()


def _uevent(path: Path) -> list[str]:
    file = path / "uevent"
    return text(file).splitlines() if file.is_file() else []


def _speed_mbit_s(path: Path) -> int:
    try:
        speed = int(filled_text(path / "speed"))
    except FileNotFoundError:
        raise
    except OSError as error:  # the kernel refuses to read the speed of a link that is down
        raise AbsentError("the link is down, or its driver reports no speed") from error
    return speed if speed > 0 else missing("the driver reports no speed")


def _driver(path: Path) -> str:
    if (path / "bonding").is_dir():
        return "bonding"
    return (path / "device/driver").readlink().name


def _rdma_facts(root: Path) -> list[Fact]:
    ports = sorted((root / "sys/class/infiniband").glob("*/ports/*"))
    facts = [fact("rdma ports", _RDMA, lambda: len(ports))]
    for port in ports:
        device = port.parent.parent.name
        name, source = f"rdma {device}:{port.name}", f"{_RDMA}/{device}/ports/{port.name}"
        facts += [
            fact(f"{name} rate", f"{source}/rate", partial(_rate_gbit_s, port), unit="Gbit/s"),
            fact(f"{name} state", f"{source}/state", partial(_state, port)),
            fact(f"{name} link", f"{source}/link_layer", partial(text, port / "link_layer")),
        ]
    return facts


def _rate_gbit_s(port: Path) -> float:
    """Return 400 for ``400 Gb/sec (4X NDR)``."""
    number, unit, *_ = filled_text(port / "rate").split()
    if unit != "Gb/sec":
        raise AbsentError(f"the rate is in {unit!r}, expected Gb/sec")
    return float(number)


def _state(port: Path) -> str:
    """Return ``active`` for ``4: ACTIVE``."""
    return text(port / "state").partition(":")[2].strip().lower()
