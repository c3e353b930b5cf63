"""Sensors on fake machines: what they name and read, and the reasons for what is absent."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.telemetry_fakes import FakeNvml, tree
from vflops.machine import nvml as nvml_module
from vflops.machine import visible_devices
from vflops.machine.telemetry.network_sensor import network_sensor
from vflops.machine.telemetry.nvidia_sensor import nvidia_sensor
from vflops.machine.telemetry.rapl_sensor import rapl_sensor
from vflops.machine.telemetry.sensor import Sensor

CAP = "sys/class/powercap"
NET = "sys/class/net"
PORT = "sys/class/infiniband/mlx5_0/ports/1"


def readings(sensor: Sensor) -> dict[str, float | None]:
    return dict(zip([item.id for item in sensor.series()], sensor.read(), strict=True))


def reasons(sensor: Sensor) -> dict[str, str]:
    return {item.what: item.reason for item in sensor.absent}


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


def test_the_values_of_a_gpu_are_in_si_units(nvml: FakeNvml) -> None:
    values = readings(nvidia_sensor([0]))
    assert values.pop("gpu0.energy") == pytest.approx(6000, abs=1)
    assert values == {
        "gpu0.utilisation": 97,
        "gpu0.memory_used": 5 << 30,
        "gpu0.power": 79.0,
        "gpu0.sm_clock": 1980,
        "gpu0.temperature": 46,
        "gpu0.nvlink_received": 7 * 1024,
    }


def test_series_say_where_they_come_from(nvml: FakeNvml) -> None:
    by_id = {item.id: item for item in nvidia_sensor([0]).series()}
    assert by_id["gpu0.power"].source == "NVML nvmlDeviceGetPowerUsage"
    assert (by_id["gpu0.energy"].kind, by_id["gpu0.energy"].unit) == ("counter", "J")


def test_what_a_gpu_does_not_have_is_absent_with_nvml_s_words(nvml: FakeNvml) -> None:
    sensor = nvidia_sensor(["bbbb"])
    assert "gpu0.energy" not in readings(sensor)
    assert reasons(sensor)["gpu0.energy"] == "NVML answers: Not Supported"
    assert reasons(sensor)["gpu0.nvlink_received"] == "NVML answers: 3"
    assert "does not know" in reasons(sensor)["gpu0.nvlink_sent"]


def test_a_gpu_that_is_lost_meanwhile_reads_null(nvml: FakeNvml) -> None:
    sensor = nvidia_sensor([0])
    nvml.is_lost = True
    values = readings(sensor)
    assert (values["gpu0.power"], values["gpu0.temperature"]) == (None, 46)


def test_gpus_are_numbered_in_the_order_given_and_a_wrong_one_is_absent(nvml: FakeNvml) -> None:
    sensor = nvidia_sensor(["GPU-bbbb", 0, 7])
    values = readings(sensor)
    assert (values["gpu0.power"], values["gpu1.power"]) == (79.001, 79.0)
    assert reasons(sensor)["gpu2"] == "NVML answers: Invalid Argument"


@pytest.mark.parametrize(
    ("visible", "ids"),
    [
        ("1", {"gpu0"}),
        ("GPU-aaaa,GPU-bbbb", {"gpu0", "gpu1"}),
        ("", set()),
        ("-1", set()),
        ("NoDevFiles", set()),
        (None, {"gpu0", "gpu1"}),
    ],
)
def test_only_gpus_of_the_run_are_read(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, visible: str | None, ids: set[str]
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert {item.id.partition(".")[0] for item in nvidia_sensor().series()} == ids


@pytest.mark.parametrize(
    ("used", "powers"),
    [
        ((), []),
        ((0,), [79.001]),
        ((1,), [79.0]),
        ((0, 1), [79.001, 79.0]),
        ((0, 1, 2, 3), [79.001, 79.0]),
        (None, [79.001, 79.0]),
    ],
)
def test_only_the_devices_of_the_job_are_read_in_the_order_of_cuda(
    nvml: FakeNvml,
    monkeypatch: pytest.MonkeyPatch,
    used: tuple[int, ...] | None,
    powers: list[float],
) -> None:
    """NVML has the devices in another order; ranks share those that there are."""
    monkeypatch.setattr(visible_devices, "cuda_uuids", lambda: ["bbbb", "aaaa"])
    sensor = nvidia_sensor(used=used)
    found = {name: value for name, value in readings(sensor).items() if name.endswith(".power")}
    assert list(found.values()) == powers
    if not powers:
        assert reasons(sensor)["NVIDIA accelerators"] == "the run uses none"


def test_what_nvml_does_not_measure_of_a_part_of_a_gpu_is_absent(nvml: FakeNvml) -> None:
    sensor = nvidia_sensor(["MIG-aaaa-1"])
    assert readings(sensor)["gpu0.memory_used"] == 5 << 30
    reason = reasons(sensor)["gpu0.power"]
    assert reason == "NVML answers, of a part of a GPU (MIG): Not Supported"


def test_without_a_device_nothing_needs_to_be_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvml_module, "driver_present", lambda root: False)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    expected = {"NVIDIA accelerators": "no NVIDIA accelerator on this machine"}
    assert reasons(nvidia_sensor()) == expected


def test_without_pynvml_or_driver_the_reason_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_module, "driver_present", lambda root: True)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install nvidia-ml-py" in reasons(nvidia_sensor())["NVIDIA accelerators"]

    class NoDriver(FakeNvml):
        def nvmlInit(self) -> None:  # noqa: N802
            raise self.NVMLError("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", NoDriver())
    assert "Driver Not Loaded" in reasons(nvidia_sensor())["NVIDIA accelerators"]


def rapl(root: Path) -> Path:
    zones = {
        "intel-rapl:0": ("package-0", 5_000_000),
        "intel-rapl:0:0": ("core", 1),
        "intel-rapl:0:1": ("dram", 2_500_000),
        "intel-rapl:1": ("package-1", 7_000_000),
        "intel-rapl:2": ("psys", 1),
        "intel-rapl-mmio:0": ("package-0", 5_000_000),
    }
    files = {}
    for zone, (name, energy_uj) in zones.items():
        files[f"{CAP}/{zone}/name"] = f"{name}\n"
        files[f"{CAP}/{zone}/energy_uj"] = f"{energy_uj}\n"
        files[f"{CAP}/{zone}/max_energy_range_uj"] = "262143328850\n"
    return tree(root, files)


def test_rapl_counts_packages_and_their_memory_once(tmp_path: Path) -> None:
    sensor = rapl_sensor(rapl(tmp_path))
    assert readings(sensor) == {
        "package0.energy": 5.0,
        "package0.memory_energy": 2.5,
        "package1.energy": 7.0,
    }
    assert {item.wraps_at for item in sensor.series()} == {262143.32885}
    assert {item.part for item in sensor.series()} == {"processor"}


def test_rapl_that_only_root_may_read_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Path, *_: object, **__: object) -> str:
        if self.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return self.read_bytes().decode()

    monkeypatch.setattr(Path, "read_text", refused)
    sensor = rapl_sensor(rapl(tmp_path))
    assert sensor.series() == []
    assert "only root may read it" in reasons(sensor)["package0.energy"]


def test_no_powercap_is_a_reason(tmp_path: Path) -> None:
    assert "does not exist" in reasons(rapl_sensor(tmp_path))["processor energy"]
    (tmp_path / CAP).mkdir(parents=True)
    assert "shows no package" in reasons(rapl_sensor(tmp_path))["processor energy"]


def interface(root: Path, name: str, received: int, sent: int, *, card: bool) -> None:
    statistics = f"{NET}/{name}/statistics"
    tree(root, {f"{statistics}/rx_bytes": f"{received}", f"{statistics}/tx_bytes": f"{sent}"})
    if card:
        (root / NET / name / "device").mkdir()


def test_loopback_is_within_the_node_and_cards_are_between(tmp_path: Path) -> None:
    interface(tmp_path, "lo", 1, 2, card=False)
    interface(tmp_path, "eth0", 3, 4, card=True)
    interface(tmp_path, "docker0", 5, 6, card=False)
    tree(tmp_path, {f"{NET}/bonding_masters": ""})
    sensor = network_sensor(tmp_path)
    assert readings(sensor) == {
        **{"net.eth0.received": 3, "net.eth0.sent": 4},
        **{"net.lo.received": 1, "net.lo.sent": 2},
    }
    assert {item.id: item.part for item in sensor.series()}["net.lo.sent"] == "network-within"
    assert {item.id: item.part for item in sensor.series()}["net.eth0.sent"] == "network-between"


def test_in_a_container_no_interface_has_a_card(tmp_path: Path) -> None:
    interface(tmp_path, "lo", 1, 2, card=False)
    interface(tmp_path, "eth0.7", 3, 4, card=False)
    assert readings(network_sensor(tmp_path))["net.eth0_7.received"] == 3


def test_infiniband_counts_words_and_ip_over_it_is_not_counted_again(tmp_path: Path) -> None:
    interface(tmp_path, "ib0", 1, 1, card=True)
    counters = {"port_rcv_data": "10\n", "port_xmit_data": "20\n"}
    tree(tmp_path, {f"{PORT}/counters/{name}": content for name, content in counters.items()})
    tree(tmp_path, {f"{NET}/ib0/type": "32\n"})
    sensor = network_sensor(tmp_path)
    assert readings(sensor) == {"rdma.mlx5_0:1.received": 40, "rdma.mlx5_0:1.sent": 80}
    assert "counted by the InfiniBand port" in reasons(sensor)["net.ib0"]


def test_a_machine_without_networks_says_so(tmp_path: Path) -> None:
    assert set(reasons(network_sensor(tmp_path))) == {"rdma ports", "network interfaces"}


@pytest.mark.skipif(not Path("/sys/class/net/lo").exists(), reason="needs Linux with a loopback")
def test_this_machine_s_own_network() -> None:
    assert readings(network_sensor())["net.lo.received"] is not None
    assert os.uname().nodename not in str(network_sensor().series())
