"""Verdicts on the results of probes: each fault is reported with its node."""

from __future__ import annotations

import re
from typing import Any

import pytest

from vflops.launch.node_check.exchange import Gpu, Health, LinkSize, Result, Space
from vflops.launch.node_check.findings import Finding, NodeResult
from vflops.launch.node_check.link_tasks import Backend, LinkTask
from vflops.launch.node_check.verdicts import Facts, judge
from vflops.record.formats.node import Clock

ROOM = Space(path="/x", free_bytes=10**12)


def health(**changes: Any) -> Health:
    values: dict[str, Any] = {
        "clock_port": 1,
        "versions": {"vflops": "1", "torch": "2"},
        "shared": ROOM,
        "local": ROOM,
        "gpus": (),
        "no_gpus": "no driver",
    }
    return Health.model_validate({**values, **changes})


def result(**changes: Any) -> NodeResult:
    values: dict[str, Any] = {
        "unseen": (),
        "clock": Clock(offset_s=0.0, uncertainty_s=1e-4),
        "read_bandwidth": 1e9,
        "read_fault": None,
        "links_fault": None,
    }
    return NodeResult.model_validate({**values, **changes})


Links = list[tuple[LinkTask, Result]]


def verdicts(
    changed: dict[int, Health],
    results: dict[int, NodeResult],
    links: Links | None = None,
    backend: Backend = "gloo",
    **scheduled: Any,
) -> list[Finding]:
    """Return the problems of nodes a, b and c."""
    facts = Facts(
        folder="/shared",
        names=dict(enumerate("abc")),
        health={**dict.fromkeys(range(3), health()), **changed},
        results={**dict.fromkeys(range(3), result()), **results},
        links=links or [],
        faults={},
        backend=backend,
        **scheduled,
    )
    return [finding for finding in judge(facts) if finding.verdict != "ok"]


def test_healthy_nodes_have_no_problems() -> None:
    assert verdicts({}, {}) == []


@pytest.mark.parametrize(
    ("changes", "what", "verdict", "words"),
    [
        ({"unseen": (0, 2)}, "shared folder", "fail", "a, c"),
        ({"clock": Clock(offset_s=-0.2, uncertainty_s=0.01)}, "clock", "warn", "-200.000 ± 10.000"),
        ({"clock": Clock(offset_s=90, uncertainty_s=0.01)}, "clock", "fail", "+90000"),
        (
            {"clock": Clock(offset_s=None, uncertainty_s=None, fault="refused")},
            *("clock", "fail", "refused"),
        ),
        ({"read_bandwidth": 0.3e9}, "shared read", "warn", "others 1.00 GB/s"),
        ({"read_bandwidth": None, "read_fault": "stale"}, "shared read", "fail", "stale"),
        ({"links_fault": "no torch"}, "all-reduce", "fail", "no torch"),
    ],
)
def test_problems_that_a_node_measured(
    changes: dict[str, Any], what: str, verdict: str, words: str
) -> None:
    (finding,) = verdicts({}, {1: result(**changes)})
    assert (finding.node, finding.what, finding.verdict) == ("b", what, verdict)
    assert words in finding.value
    assert finding.cure


def test_an_offset_within_its_uncertainty_is_no_problem() -> None:
    assert verdicts({}, {1: result(clock=Clock(offset_s=0.3, uncertainty_s=0.25))}) == []


@pytest.mark.parametrize(
    ("changes", "what", "verdict", "words"),
    [
        ({"versions": {"vflops": "1", "torch": "3"}}, "versions", "fail", "torch 3, not 2"),
        ({"shared": Space(path="/x", free_bytes=9)}, "shared space", "warn", "9.00 B free in /x"),
        ({"shared": Space(path="/x", fault="read-only")}, "shared space", "fail", "read-only"),
        ({"local": Space(path="/x", fault="no such")}, "local space", "warn", "no such"),
    ],
)
def test_problems_of_the_node_itself(
    changes: dict[str, Any], what: str, verdict: str, words: str
) -> None:
    (finding,) = verdicts({1: health(**changes)}, {})
    assert (finding.node, finding.what, finding.verdict) == ("b", what, verdict)
    assert words in finding.value
    assert finding.cure


def test_torch_missing_everywhere_fails_everywhere() -> None:
    without = health(versions={"vflops": "1", "torch": "not installed"})
    failed = verdicts(dict.fromkeys(range(3), without), {})
    assert [(finding.node, finding.verdict) for finding in failed] == [
        (name, "fail") for name in "abc"
    ]


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({"uncorrected": 1}, "fail", "ECC could not correct"),
        ({"remapping": "failed"}, "fail", "bad memory rows: failed"),
        ({"throttled": ("power brake",)}, "warn", "power brake"),
        ({"processes": (7, 8)}, "warn", "process 7, 8"),
    ],
)
def test_faulty_gpus(changes: dict[str, Any], verdict: str, words: str) -> None:
    healthy = health(gpus=(Gpu(name="H200", uncorrected=0, corrected=99),))
    bad = health(gpus=(*healthy.gpus, Gpu(name="H200", **changes)))
    (finding,) = verdicts({0: healthy, 1: bad, 2: healthy}, {})
    assert (finding.node, finding.verdict) == ("b", verdict)
    assert finding.value.startswith("1 (H200)")
    assert words in finding.value


def test_a_node_without_the_gpus_that_others_have_fails() -> None:
    healthy = health(gpus=(Gpu(name="H200"),))
    (finding,) = verdicts({0: healthy, 2: healthy}, {})
    assert (finding.node, finding.what, finding.verdict) == ("b", "gpu", "fail")


def test_gpus_that_the_scheduler_does_not_list_fail_unless_they_are_not_wanted() -> None:
    """A run would train on the CPUs of such a node, without a word."""
    owner = health(gpus=(Gpu(name="H200"),) * 8)
    owners = dict.fromkeys(range(3), owner)
    found = verdicts(owners, {}, listed={"a": 0, "b": 0})  # SLURM has another name for c
    assert [(finding.node, finding.verdict) for finding in found] == [
        ("a", "fail"),
        ("b", "fail"),
        ("c", "fail"),
    ]
    assert found[0].value.startswith("sees 8 GPUs, and the scheduler lists none")
    assert "gres.conf" in str(found[0].cure) and "train.device=cpu" in str(found[0].cure)
    assert not verdicts(owners, {})
    assert not verdicts(owners, {}, gpus=4, listed=dict.fromkeys("abc", 8))
    assert not verdicts({}, {}, listed=dict.fromkeys("abc", 0))
    (other,) = verdicts(owners, {}, gpus=4, listed={"a": 8, "b": 8, "c": 6})
    assert (other.node, other.value) == ("c", "sees 8 of the 4 GPUs that the scheduler gives")


def link(*nodes: int, time_s: float = 1.0, fault: str | None = None) -> tuple[LinkTask, Result]:
    task = LinkTask(benchmark="all-reduce", nodes=nodes, size_bytes=10**9)
    size = LinkSize(size_bytes=10**9, times_s=(time_s,) * 3, error=0.0)
    return task, Result(sizes=() if fault else (size,), fault=fault)


def test_a_slow_and_a_dead_link_name_their_nodes() -> None:
    links = [link(0, 1), link(1, 2, time_s=8.0), link(2, 0, fault="no interface")]
    slow, dead = verdicts({}, {}, [*links, link(0, 1)])
    assert (slow.node, slow.verdict, slow.value.split()[0]) == ("b – c", "warn", "125")
    assert slow.value.endswith(", others 1.00 GB/s")
    assert (dead.node, dead.verdict) == ("c – a", "fail")
    assert dead.value == "no all-reduce: no interface"


@pytest.mark.parametrize(
    ("backend", "variables"),
    [("gloo", {"GLOO"}), ("nccl", {"GLOO", "NCCL"})],
)
def test_a_dead_link_names_the_variables_of_all_groups_of_a_job(
    backend: Backend, variables: set[str]
) -> None:
    (dead,) = verdicts({}, {}, [link(0, 1, fault="no interface")], backend)
    assert set(re.findall(r"(\w+)_SOCKET_IFNAME", dead.cure or "")) == variables


def test_silent_nodes_are_named_with_the_reason() -> None:
    facts = Facts(
        folder="/shared",
        names={0: "a", 1: "b", 2: "c"},
        health={0: health(), 2: health()},
        results={0: result()},
        links=[],
        faults={1: "b says: no room", 2: "no answer within 9 s"},
        backend="gloo",
    )
    answers = [finding for finding in judge(facts) if finding.what == "answer"]
    assert [finding.verdict for finding in answers] == ["ok", "fail", "fail"]
    assert answers[1].value == "b says: no room"
    nobody = Facts("/shared", {0: "a"}, {}, {}, [], {}, "gloo")
    assert [finding.node for finding in judge(nobody)] == ["a"]
