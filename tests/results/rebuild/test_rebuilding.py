"""Graphs that are rebuilt from settings equal those that torch captures."""

from __future__ import annotations

from typing import Any

import pytest

from vflops.counting.conventions import BUILT_IN, TRANSFORMER
from vflops.counting.count import count
from vflops.errors import FolderError
from vflops.record.formats.job import DataFacts, Goal, JobRecord
from vflops.results.rebuild.graph_comparison import difference
from vflops.results.rebuild.rebuilding import can_be_rebuilt, rebuilt_graph
from vflops.workloads.contract.registry import workload

FACTS: dict[str, dict[str, Any]] = {
    "image-classification": {"classes": 7},
    "automl": {"classes": 7},
    "extreme-weather": {"height": 96, "width": 144},
    "language-model": {"vocabulary": 50_257},
}
DETECTOR: dict[str, Any] = {
    "blocks": (1, 2, 1),
    "width": 8,
    "stem": "small",
    "stages": (1, 3),
    "channels": 24,
    "pooled": True,
    "anchors": ((((8.0, 8.0), (16.0, 8.0)),) * 3),
    "regions": 9,
    "region_size": 3,
}
LLAMA: dict[str, Any] = {
    "style": "llama",
    "layers": 3,
    "width": 24,
    "heads": 6,
    "kv_heads": 2,
    "mlp_width": 17,
}
OTHERS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("image-classification", {"size": 33, "network": {"blocks": (2, 1), "width": 5}}, {}),
    ("image-classification", {"label_smoothing": 0.0, "train": {"batch": 12, "ranks": 3}}, {}),
    ("image-classification", {"train": {"batch": 12, "accumulate": 2}}, {"classes": 2}),
    ("image-classification", {"network": {"blocks": (1,), "stem": "small"}, "size": 17}, {}),
    ("automl", {"search": {"v1": True}, "size": 20, "resize": 20}, {}),
    ("extreme-weather", {"network": DETECTOR}, {"height": 101, "width": 64}),
    (
        "extreme-weather",
        {
            "network": {
                **DETECTOR,
                "pooled": False,
                "stem": "imagenet",
                "anchors": DETECTOR["anchors"][:2],
            }
        },
        {},
    ),
    ("extreme-weather", {"train": {"batch": 6, "ranks": 2}}, {"height": 90, "width": 150}),
    ("language-model", {"network": LLAMA, "context": 7}, {"vocabulary": 61}),
    ("language-model", {"network": {**LLAMA, "tied": False, "qk_norm": True}}, {}),
    ("language-model", {"network": {**LLAMA, "experts": 3, "capacity": 0.01}}, {}),
    ("language-model", {"network": {"qk_norm": True}, "context": 1}, {}),
    ("language-model", {"network": {"experts": 4, "experts_per_token": 3}}, {}),
    ("language-model", {"train": {"batch": 12, "ranks": 3, "accumulate": 2}}, {}),
    ("language-model", {"network": {"preset": "llama-8b"}}, {"vocabulary": 128_256}),
    ("language-model", {"network": {"preset": "moe-8x124m"}}, {}),
]


def record(name: str, settings: dict[str, Any], **facts: Any) -> JobRecord:
    return JobRecord(
        job=1,
        workload=name,
        repeat=0,
        seed=1,
        ranks=1,
        goal=Goal(quality="quality", better="higher", target=0.5, exponent=1),
        settings=settings,
        data=DataFacts(
            path="/data", synthetic=True, fingerprint="0" * 64, train=9, validation=9, facts=facts
        ),
    )


def assert_equals_capture(job: JobRecord) -> None:
    spec = workload(job.workload)
    settings = spec.settings.model_validate(job.settings)
    captured = spec.load_code().work(settings, job.data, job.workload)
    rebuilt = rebuilt_graph(job)
    assert rebuilt is not None
    assert difference(captured, rebuilt) is None
    rules = (*BUILT_IN, *TRANSFORMER) if job.workload == "language-model" else BUILT_IN
    for rule in rules:
        assert count(captured, rule).total == count(rebuilt, rule).total
    assert (captured.model, captured.batch) == (rebuilt.model, rebuilt.batch)


@pytest.mark.parametrize(
    ("name", "profile"), [(name, profile) for name in FACTS for profile in workload(name).profiles]
)
def test_every_profile_is_rebuilt_exactly(name: str, profile: str) -> None:
    settings = workload(name).profile(profile)
    facts = dict(FACTS[name])
    if name == "extreme-weather":
        synthetic = settings.model_dump()["synthetic"]
        facts = {"height": synthetic["height"], "width": synthetic["width"]}
    assert_equals_capture(record(name, settings.model_dump(mode="json"), **facts))


@pytest.mark.parametrize(("name", "changes", "facts"), OTHERS)
def test_other_settings_are_rebuilt_exactly(
    name: str, changes: dict[str, Any], facts: dict[str, Any]
) -> None:
    base = workload(name).profile("tiny").model_dump(mode="json")
    for key, value in changes.items():
        if isinstance(value, dict):  # a preset gives what is not set
            value = value if "preset" in value else {**base[key], **value}
        base[key] = value
    if "size" in changes:
        base["resize"] = base["size"]
    assert_equals_capture(record(name, base, **{**FACTS[name], **facts}))


def test_only_our_own_networks_are_rebuilt() -> None:
    assert not can_be_rebuilt(record("command", {}))
    assert not can_be_rebuilt(record("sentiment-of-another-package", {}))


def test_a_record_without_classes_is_not_rebuilt() -> None:
    with pytest.raises(FolderError, match=r"jobs/1/job\.json does not say the classes of the data"):
        rebuilt_graph(record("image-classification", {}))


def test_a_network_that_is_too_large_is_not_rebuilt() -> None:
    huge = {"network": {"blocks": [1] * 8, "width": 4096}}
    assert rebuilt_graph(record("image-classification", huge, classes=4)) is None


def test_invalid_settings_are_named() -> None:
    with pytest.raises(FolderError, match=r"has invalid settings: .*size"):
        rebuilt_graph(record("image-classification", {"size": 3}, classes=4))
