"""Interfaces and RDMA ports, from fake trees of /sys/class."""

from __future__ import annotations

from pathlib import Path

from tests.support.system_fakes import named, tree, value
from vflops.machine.system.network import network_facts

NET = "sys/class/net"
PORT = "sys/class/infiniband/mlx5_0/ports/1"


def card(root: Path, name: str, driver: str, **files: str) -> Path:
    """Create an interface with a device, by links as in /sys."""
    tree(root, {f"{NET}/{name}/{file}": content for file, content in files.items()})
    device = root / NET / name / "device"
    device.mkdir(parents=True)
    (device / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
    return root


def test_a_card_has_speed_state_and_driver(tmp_path: Path) -> None:
    facts = network_facts(card(tmp_path, "eth0", "mlx5_core", speed="25000\n", operstate="up\n"))
    assert (value(facts, "interface eth0 speed"), value(facts, "interface eth0 state")) == (
        *(25000, "up"),
    )
    assert named(facts, "interface eth0 speed").unit == "Mbit/s"
    assert value(facts, "interface eth0 driver") == "mlx5_core"


def test_minus_one_is_not_a_speed(tmp_path: Path) -> None:
    facts = network_facts(card(tmp_path, "eth0", "virtio_net", speed="-1\n"))
    assert named(facts, "interface eth0 speed").reason == "the driver reports no speed"


def test_a_link_that_is_down_is_told_from_a_missing_file(tmp_path: Path) -> None:
    card(tmp_path, "eth0", "ixgbe", operstate="down\n")
    assert "speed does not exist" in str(
        named(network_facts(tmp_path), "interface eth0 speed").reason
    )
    (tmp_path / NET / "eth0/speed").mkdir()  # fails to be read, as the kernel's file then does
    assert "the link is down" in str(named(network_facts(tmp_path), "interface eth0 speed").reason)


def test_loopback_and_virtual_interfaces_have_no_link(tmp_path: Path) -> None:
    card(tmp_path, "eth0", "ixgbe", speed="10000")
    virtual = {f"{NET}/{name}/speed": "10000" for name in ("lo", "veth1", "docker0")}
    facts = network_facts(tree(tmp_path, {**virtual, f"{NET}/bonding_masters": ""}))
    assert value(facts, "interfaces") == 1
    assert value(facts, "virtual interfaces") == "docker0, veth1"
    assert not [fact for fact in facts if "veth1" in fact.name or fact.name.startswith("lo")]


def test_bonds_and_vlans_count_as_links(tmp_path: Path) -> None:
    files = {
        f"{NET}/bond0/bonding/mode": "802.3ad 4",
        f"{NET}/bond0/speed": "50000",
        f"{NET}/vlan7/uevent": "DEVTYPE=vlan\nINTERFACE=vlan7\n",
        f"{NET}/vlan7/speed": "25000",
    }
    facts = network_facts(tree(tmp_path, files))
    assert value(facts, "interface bond0 speed") == 50000
    assert value(facts, "interface bond0 driver") == "bonding"
    assert value(facts, "interface vlan7 speed") == 25000


def test_an_infiniband_port(tmp_path: Path) -> None:
    port = {"rate": "400 Gb/sec (4X NDR)\n", "state": "4: ACTIVE\n", "link_layer": "InfiniBand\n"}
    facts = network_facts(tree(tmp_path, {f"{PORT}/{name}": line for name, line in port.items()}))
    assert value(facts, "rdma ports") == 1
    assert value(facts, "rdma mlx5_0:1 rate") == 400
    assert named(facts, "rdma mlx5_0:1 rate").unit == "Gbit/s"
    assert value(facts, "rdma mlx5_0:1 state") == "active"
    assert value(facts, "rdma mlx5_0:1 link") == "InfiniBand"


def test_no_rdma_is_none_counted(tmp_path: Path) -> None:
    assert value(network_facts(tmp_path), "rdma ports") == 0


def test_a_machine_without_sys_says_so(tmp_path: Path) -> None:
    assert named(network_facts(tmp_path), "interfaces").reason == "/sys/class/net does not exist"
