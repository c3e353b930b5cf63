"""Bytes received and sent by each network interface and each RDMA port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vflops.machine.probe import text
from vflops.machine.telemetry.sensor import Channel, Channels, number_reader
from vflops.record.formats.telemetry import Absent, Series

_NET = "/sys/class/net"
_RDMA = "/sys/class/infiniband"
_INFINIBAND = "32"  # the kernel's ARPHRD_INFINIBAND
# The InfiniBand specification counts words of four bytes, one per lane.
_RDMA_WORD_B = 4


def network_sensor(root: Path = Path("/")) -> Channels:
    """Return counters of bytes received and sent.

    Loopback counts as traffic within the node, all other interfaces as traffic between nodes.
    """
    ports = sorted((root / _RDMA.lstrip("/")).glob("*/ports/*"))
    absent = [] if ports else [Absent(what="rdma ports", reason=f"none in {_RDMA}")]
    interfaces = _interfaces(root)
    if not interfaces:
        absent.append(Absent(what="network interfaces", reason=f"none in {_NET}"))
    counted: list[Path] = []
    for path in interfaces:
        if ports and _read_or_empty(path / "type") == _INFINIBAND:
            reason = "its bytes are counted by the InfiniBand port below it"
            absent.append(Absent(what=f"net.{_id_part(path.name)}", reason=reason))
        else:
            counted.append(path)
    return Channels([*_interface_channels(counted), *_port_channels(ports)], absent)


def _interfaces(root: Path) -> list[Path]:
    """Return loopback and the interfaces of physical devices.

    Bridges, bonds and the like forward traffic that a device has already counted. In a container no
    interface has a device; then all are returned.
    """
    folder = root / _NET.lstrip("/")
    paths = sorted(path for path in folder.glob("*") if (path / "statistics").is_dir())
    physical = [path for path in paths if (path / "device").exists()]
    return [path for path in paths if path.name == "lo" or path in physical or not physical]


def _interface_channels(paths: list[Path]) -> Iterator[Channel]:
    for path in paths:
        for direction, file in (("received", "rx_bytes"), ("sent", "tx_bytes")):
            within = path.name == "lo"
            where = "within the node" if within else "between nodes"
            series = Series(
                id=f"net.{_id_part(path.name)}.{direction}",
                title=f"{path.name}, bytes {direction}, {where}",
                unit="B",
                source=f"{_NET}/{path.name}/statistics/{file}",
                kind="counter",
                part="network-within" if within else "network-between",
            )
            yield Channel(series, number_reader(path / "statistics" / file))


def _port_channels(ports: list[Path]) -> Iterator[Channel]:
    for port in ports:
        device = port.parent.parent.name
        for direction, file in (("received", "port_rcv_data"), ("sent", "port_xmit_data")):
            series = Series(
                id=f"rdma.{_id_part(device)}:{port.name}.{direction}",
                title=f"{device} port {port.name}, bytes {direction}, between nodes",
                unit="B",
                source=f"{_RDMA}/{device}/ports/{port.name}/counters/{file} × {_RDMA_WORD_B}",
                kind="counter",
                part="network-between",
            )
            yield Channel(series, number_reader(port / "counters" / file, scale=_RDMA_WORD_B))


def _id_part(name: str) -> str:
    """Return a name that is valid in a series id, which a name with a dot (``eth0.7``) is not."""
    return name.replace(".", "_")


def _read_or_empty(path: Path) -> str:
    try:
        return text(path)
    except OSError:
        return ""
