"""Bytes over every network interface and every port of an RDMA device."""

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
_WORD_B = 4


def network_sensor(root: Path = Path("/")) -> Channels:
    """Return counters of bytes in and out: loopback within the node, all others between nodes."""
    ports = sorted((root / _RDMA.lstrip("/")).glob("*/ports/*"))
    absent = [] if ports else [Absent(what="rdma ports", reason=f"none in {_RDMA}")]
    interfaces = _interfaces(root)
    if not interfaces:
        absent.append(Absent(what="network interfaces", reason=f"none in {_NET}"))
    counted: list[Path] = []
    for path in interfaces:
        if ports and _read(path / "type") == _INFINIBAND:
            reason = "its bytes are counted by the InfiniBand port below it"
            absent.append(Absent(what=f"net.{_word(path.name)}", reason=reason))
        else:
            counted.append(path)
    return Channels([*_of_interfaces(counted), *_of_ports(ports)], absent)


def _interfaces(root: Path) -> list[Path]:
    """Return loopback and the interfaces with a device; all in a container, where none has one.

    Bridges, bonds and the like forward what a card has already counted.
    """
    folder = root / _NET.lstrip("/")
    paths = sorted(path for path in folder.glob("*") if (path / "statistics").is_dir())
    cards = [path for path in paths if (path / "device").exists()]
    return [path for path in paths if path.name == "lo" or path in cards or not cards]


def _of_interfaces(paths: list[Path]) -> Iterator[Channel]:
    for path in paths:
        for word, file in (("received", "rx_bytes"), ("sent", "tx_bytes")):
            within = path.name == "lo"
            where = "within the node" if within else "between nodes"
            series = Series(
                id=f"net.{_word(path.name)}.{word}",
                title=f"{path.name}, bytes {word}, {where}",
                unit="B",
                source=f"{_NET}/{path.name}/statistics/{file}",
                kind="counter",
                part="network-within" if within else "network-between",
            )
            yield Channel(series, number_reader(path / "statistics" / file))


def _of_ports(ports: list[Path]) -> Iterator[Channel]:
    for port in ports:
        device = port.parent.parent.name
        for word, file in (("received", "port_rcv_data"), ("sent", "port_xmit_data")):
            series = Series(
                id=f"rdma.{_word(device)}:{port.name}.{word}",
                title=f"{device} port {port.name}, bytes {word}, between nodes",
                unit="B",
                source=f"{_RDMA}/{device}/ports/{port.name}/counters/{file} × {_WORD_B}",
                kind="counter",
                part="network-between",
            )
            yield Channel(series, number_reader(port / "counters" / file, scale=_WORD_B))


def _word(name: str) -> str:
    """Return a name that fits into an id; ``eth0.7`` of a VLAN does not."""
    return name.replace(".", "_")


def _read(path: Path) -> str:
    try:
        return text(path)
    except OSError:
        return ""
