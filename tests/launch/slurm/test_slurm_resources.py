"""Which resources of SLURM's nodes ranks and preflights get, from what its commands print."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.sample_parts import Vflops
from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch.site import SiteSettings
from vflops.launch.slurm.slurm_nodes import current_allocation
from vflops.launch.slurm.slurm_resources import nodes_for_ranks
from vflops.launch.slurm.time_limits import requested_s, time_limit_s
from vflops.run.run_size import request_lines, size_run
from vflops.workloads.contract.run_settings import load, profile

Cluster = Callable[..., None]

EIGHT = "gpu:h100:8(S:0-1)"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Nodes of 96 cores with these generic resources, and what an allocation has of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")

    def of(*gres: str, site: str = "", allocated: str | None = None, state: str = "idle") -> None:
        lines = [f"g{k}|96|1000000|{each}|{state}|gpu|none" for k, each in enumerate(gres, start=1)]
        limits = "gpu|2:00:00|1-00:00:00\\nlong|n/a|infinite\\n"
        answers = {
            "sinfo": f'case "$*" in *%L*) printf "{limits}" ;; *%R*) echo gpu ;;'
            f' *partition=gpu*|*--format=%N*) printf "%s\\n" {" ".join(map(repr, lines))} ;; esac',
            "scontrol": f"echo 'JobId=7   Nodes=g[1-2] CPU_IDs=0-31 Mem=1000 GRES={allocated}'",
            "sbatch": 'for word; do cp "$word" submitted.sh; done 2>/dev/null; '
            "echo 'sbatch: error: Batch job submission failed: test' >&2; exit 1",
        }
        for name, answer in answers.items():
            (programs / name).write_text(f"#!/bin/bash\n{answer}\n")
            (programs / name).chmod(0o755)
        (tmp_path / "site.toml").write_text(site or 'partition = "gpu"\n')
        if allocated is not None:
            monkeypatch.setenv("SLURM_JOB_ID", "7")
            monkeypatch.setenv("SLURM_JOB_NODELIST", "g[1-2]")

    return of


def resources(device: str = "auto", **launch: Any) -> list[tuple[str, int, int, str | None]]:
    """The slots of each node, its GPUs and their type."""
    settings = LaunchSettings(on="slurm", **launch)
    nodes = nodes_for_ranks(settings, device, current_allocation())
    return [
        (node.name, node.slots, node.resources.gpus, node.resources.gpu_type)
        for node in nodes
        if node.resources is not None
    ]


WRONG_TYPE = 'partition = "gpu"\ngpu_type = "H100"\n'


@pytest.mark.parametrize(
    ("gres", "site", "message", "hint"),
    [
        ((EIGHT,), WRONG_TYPE, "gpu_type is H100 in site.toml, but SLURM lists only GPUs of type"
         " h100 in the partition gpu", "set gpu_type to h100; to train on CPUs add"),
        ((EIGHT, "gpu:a100:4"), WRONG_TYPE, "of type a100 or h100", "set gpu_type to a100 or h100"),
        (("gpu:8",), WRONG_TYPE, "SLURM lists GPUs without a type", "leave gpu_type out"),
        (("(null)",), WRONG_TYPE, "SLURM lists no GPU in the partition", "set another partition"),
    ],
)  # fmt: skip
def test_a_type_of_gpu_that_no_node_has_is_refused(
    cluster: Cluster, gres: tuple[str, ...], site: str, message: str, hint: str
) -> None:
    cluster(*gres, site=site)
    with pytest.raises(UsageError) as refused:
        resources()
    assert message in refused.value.message
    assert hint in str(refused.value.hint)
    with pytest.raises(UsageError, match="gpu_type is H100"):
        resources("cpu", gpus_per_rank=1)  # a trial of the layout requests GPUs, too


@pytest.mark.parametrize(
    ("device", "launch"),
    [("cpu", {}), ("auto", {"gpus_per_rank": 0}), ("cpu", {"gpus_per_rank": 0})],
)
def test_training_on_the_cpus_of_gpu_nodes_is_allowed_if_it_was_asked_for(
    cluster: Cluster, device: str, launch: dict[str, int]
) -> None:
    cluster(EIGHT, EIGHT, site=WRONG_TYPE)
    assert resources(device, **launch) == [("g1", 96, 0, None), ("g2", 96, 0, None)]
    cluster(EIGHT, EIGHT, allocated="")
    assert resources(device, **launch) == [("g1", 32, 0, None), ("g2", 32, 0, None)]


@pytest.mark.parametrize("gpu_type", [None, "h100"])
def test_an_allocation_without_the_gpus_of_its_nodes_is_refused(
    cluster: Cluster, gpu_type: str | None
) -> None:
    site = f'gpu_type = "{gpu_type}"\n' if gpu_type else ""
    cluster(EIGHT, EIGHT, site=site, allocated="")
    with pytest.raises(UsageError) as refused:
        resources()
    what = "8 h100 GPUs" if gpu_type else "8 GPUs"
    assert refused.value.message == f"the allocation 7 has none of the {what} of its nodes"
    assert "salloc --gpus-per-node=8" in str(refused.value.hint)
    assert "launch.gpus_per_rank=0" in str(refused.value.hint)
    cluster(EIGHT, EIGHT, site=site, allocated="gpu:h100:4(IDX:0-3)")
    assert resources() == [("g1", 4, 4, "h100"), ("g2", 4, 4, "h100")]


def test_nodes_with_gpus_that_are_all_down_are_not_replaced_by_others(cluster: Cluster) -> None:
    cluster(EIGHT, "(null)")
    listing = Path("programs/sinfo")
    listing.write_text(listing.read_text().replace(f"{EIGHT}|idle", f"{EIGHT}|down"))
    with pytest.raises(UsageError, match="the nodes with GPUs in the partition gpu cannot be used"):
        resources()


def test_a_site_with_cpus_only_needs_no_more_words(cluster: Cluster) -> None:
    cluster("(null)", "(null)")
    assert resources() == [("g1", 96, 0, None), ("g2", 96, 0, None)]


def lines_of(*given: str) -> tuple[list[str], list[str]]:
    """What a run would ask for, and what would stay idle."""
    chosen = load(profile("gpu", ["image-classification"]), None, ["launch.on=slurm", *given])
    size = size_run(chosen, [item.partition("=")[0] for item in given])
    return request_lines(load(chosen, None, [*given, "launch.on=slurm", *size.assignments]))


@pytest.mark.parametrize(
    ("given", "idle"),
    [
        (("launch.nodes=2",), []),
        (("launch.nodes=2", "bagging.models=3", "train.ranks=4"),
         ["4 of 16 GPUs of the 2 nodes stay idle"]),
        (("launch.nodes=2", "bagging.models=2", "train.ranks=4"),
         ["4 of 8 GPUs of a node stay idle"]),
        (("launch.nodes=3", "bagging.models=2", "train.ranks=8"), ["1 of 3 nodes stay idle"]),
    ],
)  # fmt: skip
def test_gpus_that_stay_idle_are_counted_over_all_nodes(
    cluster: Cluster, given: tuple[str, ...], idle: list[str]
) -> None:
    cluster(EIGHT, EIGHT, EIGHT)
    assert lines_of(*given)[1] == idle


def test_the_line_of_a_request_names_the_partition_that_jobs_get(cluster: Cluster) -> None:
    directives = 'directives = ["--partition=gpu", "-A other"]\n'
    cluster(EIGHT, site=f'partition = "nowhere"\naccount = "ab12"\n{directives}')
    ((line,), _) = lines_of("launch.nodes=1")
    assert line == (
        "1 node × 8 GPUs (h100), 12 cores and 125 GB a rank, partition gpu, account other"
    )
    cluster(EIGHT, EIGHT, allocated="gpu:h100:8(IDX:0-7)")
    ((line,), _) = lines_of()
    assert "partition" not in line


def asked_by_preflight(vflops: Vflops, *arguments: str) -> dict[str, str]:
    """The options of the script that a preflight submits."""
    done = vflops("preflight", "--on", "slurm", *arguments)
    assert "slurm refused" in done.stderr, done.stderr
    (script,) = Path("runs").glob("*/preflight.sh")
    return dict(re.findall(r"#SBATCH --(\S+?)=(\S+)", script.read_text()))


@pytest.mark.parametrize(
    ("gres", "site", "nodes", "expected"),
    [
        ((EIGHT,) * 2, "", "2", {"gres": "gpu:h100:8", "cpus-per-task": "96", "mem": "950000M"}),
        (("gpu:a100:8",) * 2, 'gpu_type = "a100"\n', "2", {"gres": "gpu:a100:8"}),
        # Of nodes with four and with eight GPUs, the same that a run gets.
        ((EIGHT, "gpu:h100:4", EIGHT), "", "2", {"gres": "gpu:h100:8", "cpus-per-task": "96"}),
        ((EIGHT, "gpu:h100:4", EIGHT), "", "3", {"gres": "gpu:h100:4", "cpus-per-task": "48"}),
        ((EIGHT,) * 2, 'directives = ["--exclusive"]\n', "2", {"cpus-per-task": "96", "mem": "0"}),
    ],
)
def test_a_preflight_asks_for_what_a_run_gets(
    cluster: Cluster,
    vflops: Vflops,
    gres: tuple[str, ...],
    site: str,
    nodes: str,
    expected: dict[str, str],
) -> None:
    cluster(*gres, site=f'partition = "gpu"\n{site}')
    asked = asked_by_preflight(vflops, "--nodes", nodes)
    assert {name: asked[name] for name in expected} == expected


def test_a_preflight_of_some_gpus_gets_their_share(cluster: Cluster, vflops: Vflops) -> None:
    cluster(EIGHT, EIGHT, site='directives = ["--partition=gpu"]\n')
    asked = asked_by_preflight(vflops, "--nodes", "2", "--gpus", "2")
    assert (asked["gres"], asked["cpus-per-task"]) == ("gpu:h100:2", "24")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 300), ("5:30", 330), ("1:05:30", 3930), ("2-3", 183600), ("2-3:15", 184500),
        ("1-00:00:30", 86430), ("0", None), ("infinite", None), ("UNLIMITED", None), ("1-", None),
    ],
)  # fmt: skip
def test_time_limits_are_read_as_sbatch_reads_them(text: str, seconds: float | None) -> None:
    assert requested_s(text) == seconds


@pytest.mark.parametrize(
    ("site", "seconds"),
    [
        ({"time_limit": "0:30"}, 1800),
        ({"time_limit": "0:30", "directives": ["--time=5"]}, 300),
        ({"time_limit": "0:30", "directives": ["--time=5", "-t 1:30"]}, 90),
        ({"time_limit": "0:30", "directives": ["-t1-0", "--time-min=3"]}, 86400),
        ({"time_limit": "0:30", "directives": ["--time infinite"]}, None),
        ({"directives": ["--time='2'"]}, 120),
        ({"partition": "gpu"}, 7200),
        ({"partition": "nowhere", "directives": ["-p gpu"]}, 7200),
        ({"partition": "long,gpu"}, 7200),
        ({"partition": "long"}, None),
    ],
)
def test_the_time_limit_is_that_of_the_directives_of_the_site_or_of_the_partition(
    cluster: Cluster, site: dict[str, Any], seconds: float | None
) -> None:
    cluster(EIGHT)
    assert time_limit_s(SiteSettings.model_validate(site)) == seconds
