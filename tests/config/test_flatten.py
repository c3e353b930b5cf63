"""Settings under dotted names."""

from __future__ import annotations

from vflops.config.flatten import differences, flatten


def test_every_value_has_its_dotted_name() -> None:
    settings = {"seed": 1, "train": {"lr": 0.1, "parallel": {"mode": "data"}}, "classes": [1, 2]}
    assert flatten(settings) == {
        "seed": 1,
        "train.lr": 0.1,
        "train.parallel.mode": "data",
        "classes": [1, 2],
    }
    assert flatten(flatten(settings)) == flatten(settings)
    assert list(flatten({"models": 4}, "bagging.")) == ["bagging.models"]


def test_an_empty_section_is_kept_only_on_request() -> None:
    assert flatten({"workloads": {}, "seed": 1}) == {"seed": 1}
    assert flatten({"workloads": {}, "seed": 1}, keep_empty=True) == {"workloads": {}, "seed": 1}


def test_differences_have_both_values_in_the_order_of_the_second() -> None:
    before = {"a": 1, "gone": 2, "train": {"lr": 0.1, "batch": 8}}
    after = {"train": {"batch": 16, "lr": 0.1, "new": "x"}, "a": 3, "unset": None}
    changed = differences(before, after)
    assert changed == {
        "train.batch": (8, 16),
        "train.new": (None, "x"),
        "a": (1, 3),
        "gone": (2, None),
    }
    assert list(changed) == ["train.batch", "train.new", "a", "gone"]
    assert not differences(before, before)
