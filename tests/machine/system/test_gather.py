"""The whole system: this machine, one that has nothing, and one that returns garbage."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import torch

from tests.support.paths import ROOT
from tests.support.stored_machines import Machine
from tests.support.system_fakes import tree
from vflops.machine.system import gather as gather_module
from vflops.machine.system.gather import gather
from vflops.record.formats.system import LAYERS, Fact, SystemRecord


def facts(record: SystemRecord) -> list[Fact]:
    return [fact for layer in record.layers for fact in layer.facts]


def test_this_machine_in_nine_layers(tmp_path: Path) -> None:
    record = gather(tmp_path)
    assert tuple(layer.name for layer in record.layers) == LAYERS
    assert record.fact("framework", "torch").value == torch.__version__
    assert record.fact("framework", "torch commit").value == torch.version.git_version
    assert record.fact("programming model", "default precision").value == "float32"
    for name in ("cpu model", "logical cpus", "usable cpus", "memory", "file system"):
        assert record.fact("hardware", name).value is not None


def assert_sound(record: SystemRecord) -> None:
    """Assert that every fact has a value or a reason that a person can understand."""
    assert tuple(layer.name for layer in record.layers) == LAYERS
    for fact in facts(record):
        assert (fact.value is None) != (fact.reason is None)
        assert fact.reason != ""
        assert fact.source
        assert "Error" not in str(fact.reason), fact
        assert fact.value not in ("", "None"), fact
        assert not isinstance(fact.value, int | float) or fact.value >= 0, fact
        assert fact.unit is None or fact.value != 0 or fact.name == "swap", fact


def test_every_fact_has_a_value_or_a_reason(tmp_path: Path) -> None:
    assert_sound(gather(tmp_path))


def test_every_fact_of_a_stored_machine_has_a_value_or_a_reason(described: SystemRecord) -> None:
    assert_sound(described)


def test_facts_of_a_stored_machine_are_as_expected(
    machine: Machine, described: SystemRecord
) -> None:
    for expected in machine.facts:
        fact = described.fact(expected.layer, expected.name)
        assert (None if fact.value is None else str(fact.value)) == expected.value, fact


def test_the_record_survives_its_file(tmp_path: Path) -> None:
    assert_survives(gather(tmp_path), tmp_path / "system.json")


def test_the_record_of_a_stored_machine_survives_its_file(
    described: SystemRecord, tmp_path: Path
) -> None:
    assert_survives(described, tmp_path / "system.json")


def assert_survives(record: SystemRecord, file: Path) -> None:
    """Assert that the file is valid by its schema, and gives the same record."""
    record.write(file)
    assert SystemRecord.read(file) == record
    schema = json.loads((ROOT / "docs/schemas/vflops.system.json").read_text())
    jsonschema.validate(json.loads(file.read_text()), schema)


def test_without_a_workload_the_last_three_layers_say_so(tmp_path: Path) -> None:
    for layer in gather(tmp_path, import_torch=False).layers[-3:]:
        assert [fact.reason for fact in layer.facts] == ["the run has no workload"]


def test_a_workload_fills_its_layers(tmp_path: Path) -> None:
    record = gather(
        tmp_path,
        import_torch=False,
        implementation={"model": "resnet50"},
        hyper_parameters={"learning rate": 0.1, "batch": 256},
        problem={"dataset": "ImageNet"},
    )
    assert record.fact("workload implementation", "model").value == "resnet50"
    assert record.fact("hyper-parameters", "batch").value == 256
    assert record.fact("problem domain", "dataset").value == "ImageNet"


def test_torch_is_not_imported_unless_asked_for(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from vflops.machine.system.gather import gather;"
        f"record = gather(Path({str(tmp_path)!r}), import_torch=False);"
        "print(record.fact('framework', 'torch').reason); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "torch was not imported\n")


def test_a_torch_that_cannot_be_imported_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    record = gather(tmp_path)
    assert "torch cannot be imported" in str(record.fact("framework", "torch").reason)
    assert record.fact("framework", "python").value is not None


def test_a_machine_without_proc_and_sys_gives_reasons(tmp_path: Path) -> None:
    record = gather(tmp_path, import_torch=False, root=tmp_path / "empty", environ={})
    for name in ("cpu model", "cpu sockets", "memory", "interfaces", "file system"):
        assert record.fact("hardware", name).reason
    assert record.fact("operating system", "kernel").reason


FILES = (
    *("proc/cpuinfo", "proc/meminfo", "proc/self/status", "proc/self/cgroup"),
    *("proc/self/mountinfo", "proc/sys/kernel/osrelease", "etc/os-release"),
    *("sys/devices/system/cpu/online", "sys/devices/system/node/online"),
    *("sys/devices/system/cpu/cpu0/topology/physical_package_id",),
    *("sys/devices/system/cpu/cpu0/topology/thread_siblings_list",),
    *("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq",),
    *(f"sys/devices/system/cpu/cpu0/cache/index0/{name}" for name in ("level", "type", "size")),
    *("sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list",),
    *(
        "sys/class/net/eth0/speed",
        "sys/class/net/eth0/device/vendor",
        "sys/class/dmi/id/sys_vendor",
    ),
    *("sys/class/infiniband/mlx5_0/ports/1/rate", "sys/class/infiniband/mlx5_0/ports/1/state"),
    *("sys/kernel/mm/transparent_hugepage/enabled", "sys/module/nvidia/version"),
    *("sys/devices/system/edac/mc/mc0/dimm0/dimm_mem_type",),
)


@pytest.mark.parametrize(
    "rubbish", ["", "\n\n", "a", ":", "a:b:c\n\n-1", "1 - 2", "\x00\ufffd", "-"]
)
def test_garbage_never_raises(tmp_path: Path, rubbish: str) -> None:
    root = tree(tmp_path, dict.fromkeys(FILES, rubbish))
    record = gather(tmp_path, import_torch=False, root=root, environ={"SLURM_JOB_ID": rubbish})
    assert not [fact for fact in facts(record) if fact.source == "vflops" and fact.value is None]
    record.to_json().encode()


def test_an_area_that_fails_as_a_whole_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(root: Path) -> list[Fact]:
        raise RuntimeError("the kernel is odd")

    monkeypatch.setattr(gather_module, "cpu_facts", fail)
    record = gather(tmp_path, import_torch=False)
    assert record.fact("hardware", "cpu").reason == "RuntimeError: the kernel is odd"
    assert record.fact("hardware", "memory").value is not None


def test_hosts_people_and_secrets_stay_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER", "LOGNAME", "HOSTNAME", "API_TOKEN", "SLURM_JOB_USER", "SLURM_NODELIST"):
        monkeypatch.setenv(name, "alice-secret-host")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setattr("platform.node", lambda: "alice-secret-host")
    monkeypatch.setattr("socket.gethostname", lambda: "alice-secret-host")
    folder = tmp_path / "alice-secret-host"
    folder.mkdir()
    record = gather(folder)
    assert record.fact("operating system", "scheduler").value == "slurm"
    assert "alice" not in record.to_json()
